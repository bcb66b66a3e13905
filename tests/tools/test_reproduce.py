from __future__ import annotations

import pytest
import reproduce


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ga3c-fig31", "unknown experiment 'ga3c-fig31'; did you mean ga3c-fig3?; available: ga3c-fig3, "),
        ("ga3c-fig3 --games Pong", "ga3c-fig3 does not use several games"),
        ("ga3c-fig3 -- --seed 3", "--seed is set by the experiment; leave it out after --"),
        ("ga3c-fig3 -- --agents 3", "of ga3c-fig3 has agents"),
        ("fig9 --env CartPole-v1", "task 'pc' does not fit CartPole-v1"),
        ("", "required: EXPERIMENT"),
        ("ba3c-fig6 --env ALE/Pong-v5", "ba3c-fig6 has fixed settings; leave out --env and flags after --"),
        ("ba3c-fig6 -- --network large", "ba3c-fig6 has fixed settings; leave out --env and flags after --"),
        ("ba3c-fig6 --rounds 3", "--rounds can't be used with ba3c-fig6, a cluster experiment; leave it out"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, words, message):
    """One line, exit code 2, and nothing left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert reproduce.main(words.split()) == 2
    out, err = capsys.readouterr()
    assert err.startswith("reproduce.py: ") and err.count("\n") == 1 and message in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
