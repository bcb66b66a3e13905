"""The library's build: cached by the source, safe at concurrent starts, one line without a compiler."""

import multiprocessing
import os

import pytest
from gunreal_emulator import EmulatorUnavailable, build

SCRIPT = "#!/bin/sh\necho run >> {log}\nwhile [ $# -gt 1 ]; do if [ $1 = -o ]; then echo made > $2; fi; shift; done\n"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A compiler that takes no time and counts its runs."""
    path, log = tmp_path / "cxx", tmp_path / "log"
    path.write_text(SCRIPT.format(log=log))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("GUNREAL_CACHE", str(tmp_path / "cache"))
    return log


def test_the_library_is_compiled_once(compiler):
    first = build.library_path()
    assert build.library_path() == first and first.read_text() == "made\n"
    assert compiler.read_text().count("run") == 1


def test_another_source_is_another_library(compiler, tmp_path, monkeypatch):
    first = build.library_path()
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "atari.cpp").write_text("int x;")
    monkeypatch.setattr(build, "SOURCE", tmp_path / "core")
    assert build.library_path() != first


def start(queue):
    queue.put(build.library_path().read_text())


def test_processes_that_start_at_once_all_get_it(compiler):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=start, args=(queue,)) for _ in range(6)]
    for process in processes:
        process.start()
    assert [queue.get(timeout=60) for _ in processes] == ["made\n"] * 6
    for process in processes:
        process.join()
    assert [name for name in os.listdir(build.cache_folder()) if name.endswith(".tmp")] == []


def for_gpu():
    return build.cached("cuda", "ffi.cu", cuda="sm_90")


@pytest.mark.parametrize(("get", "name"), [(build.library_path, r"g\+\+"), (for_gpu, "nvcc")])
def test_a_missing_compiler_is_an_error_of_one_line(get, name, tmp_path, monkeypatch):
    for variable in ("GUNREAL_CACHE", "CUDA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    for variable in ("CXX", "CUDACXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmulatorUnavailable, match=name) as error:
        get()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("get", "fix"), [(build.library_path, "CXX"), (for_gpu, "CUDACXX")])
def test_a_compiler_that_fails_is_one_line(get, fix, tmp_path, monkeypatch):
    monkeypatch.setenv("GUNREAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bad").write_text("#!/bin/sh\necho 'a warning' >&2\necho 'error: no such thing' >&2\nexit 1\n")
    (tmp_path / "bad").chmod(0o755)
    monkeypatch.setenv(fix, str(tmp_path / "bad"))
    with pytest.raises(EmulatorUnavailable, match=f"error: no such thing.*{fix}") as error:
        get()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("get", [build.library_path, lambda: build.cached("libjax", "ffi.cpp")])
def test_a_cache_of_another_user_is_one_line(get, tmp_path, monkeypatch):
    """As with HOME=/root in a container that runs as another user."""
    monkeypatch.setenv("GUNREAL_CACHE", str(tmp_path / "cache"))

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(
        build.Path, "stat", lambda path, **_: refuse(path) if tmp_path in path.parents else os.stat(path)
    )
    monkeypatch.setattr(build.Path, "mkdir", refuse)
    with pytest.raises(EmulatorUnavailable, match="Permission denied") as error:
        get()
    assert "\n" not in str(error.value)


def test_a_damaged_library_is_one_line(tmp_path):
    (tmp_path / "empty.so").touch()
    with pytest.raises(EmulatorUnavailable, match="can't load .*empty.so .*; delete it, or set GUNREAL_CACHE"):
        build.opened(tmp_path / "empty.so")


def test_a_user_without_a_home_folder_is_told_what_to_set(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("GUNREAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(build.Path, "home", home)
    with pytest.raises(EmulatorUnavailable, match="set GUNREAL_CACHE"):
        build.cache_folder()


def test_another_platform_has_no_flags_of_this_processor(tmp_path, monkeypatch):
    """`.ci/wheels` compiles for arm64 on x86-64, and an emulated arm64 shows the flags of the x86-64 below it."""
    monkeypatch.setattr(build.sysconfig, "get_platform", lambda: "linux-aarch64")
    monkeypatch.setattr(build, "CPUINFO", tmp_path / "cpuinfo")
    build.CPUINFO.write_text("flags\t\t: fpu sse2 abm avx2 bmi1 bmi2 f16c fma movbe\n")
    assert build.processors() == ((),) and build.processor_flags() == ()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="one library serves all processors")
def test_the_library_is_chosen_by_the_processor(compiler, tmp_path, monkeypatch):
    of_all, of_newer = [build.library_name(flags) for flags in build.processors()]
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(build, "CPUINFO", cpuinfo)
    newer = "fpu sse2 abm avx2 bmi1 bmi2 f16c fma movbe"
    for features, name in ((newer, of_newer), (newer.replace(" fma", ""), of_all), ("", of_all)):
        cpuinfo.write_text(f"model name\t: a\nflags\t\t: {features}\n")
        assert build.library_path().name == name
    cpuinfo.unlink()
    assert build.library_path().name == of_all


def test_a_compiler_may_have_arguments(compiler, monkeypatch):
    monkeypatch.setenv("CXX", f"{os.environ['CXX']} c++ -target some")
    assert build.library_path().read_text() == "made\n"
