// Random cartridges with random actions and random sizes of observations: run under sanitizers,
// nothing may be read or written outside.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "vector.h"

using namespace atari;

int main(int argc, char** argv) {
  const int roms = argc > 1 ? std::atoi(argv[1]) : 20, frames = argc > 2 ? std::atoi(argv[2]) : 40;
  uint64_t random = 12345;
  uint32_t check = 0;
  const std::vector<uint8_t> palette(768, 255);
  const int32_t code[] = {kByte, 10, kEnd};
  const uint8_t start[] = {1, 40, 41};
  for (int k = 0; k < roms; k++) {
    const uint8_t scheme = uint8_t(k % 8);
    const uint32_t size = scheme == k2K ? 2048 : scheme == k4K ? 4096 : scheme == kF6 || scheme == kF6SC ? 16384 : 8192;
    std::unique_ptr<uint8_t[]> rom(new uint8_t[size]);
    for (uint32_t b = 0; b < size; b++) {
      rom[b] = uint8_t(next_random(random));
      // Most random programs jam at once; these play longer, and write to the TIA a lot.
      if ((rom[b] & 0x1F) == 0x12 || rom[b] == 0x02 || rom[b] == 0x22 || rom[b] == 0x42 || rom[b] == 0x62) rom[b] = 0x85;
    }
    const uint16_t height = k % 3 ? 210 : 250;
    std::unique_ptr<uint8_t[]> screens(new uint8_t[size_t(2) * height * kWidth]());
    Game game{};
    game.cart = Cartridge{rom.get(), size, scheme, uint8_t(k % 3), 34, height, uint16_t(k % 3 ? 290 : 342), uint8_t(k & 1),
                          uint8_t(k % 3 == 0)};
    game.rules = Rules{code, code, nullptr, code, code};
    game.start = start;
    game.start_length = 3;
    Noise noise(k);
    std::unique_ptr<Player> player(new Player);
    boot(*player, game, noise);
    start_episode(*player, game, noise, screens.get());
    for (int f = 0; f < frames; f++) {
      if (f % 10 == 0) {
        Protocol protocol{};
        protocol.channels = 1;
        protocol.height = int32_t(1 + next_random(random) % 300);
        protocol.width = int32_t(1 + next_random(random) % 300);
        std::vector<uint8_t> out(frame_size(protocol));
        Eye(game, protocol, palette.data()).look(screens.get(), f ? screens.get() + height * kWidth : nullptr, out.data());
        check += out.back();
      }
      check += uint32_t(emulate(*player, game, uint32_t(next_random(random) % 20), f & 1 ? screens.get() : nullptr));
    }
  }
  std::printf("%u\n", check);
  return 0;
}
