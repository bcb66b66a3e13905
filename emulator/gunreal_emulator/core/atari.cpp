// The functions that Python calls. build.py declares them, and console.py and vector.py define the same structures.
#include <cstddef>
#include <memory>

#include "pack.h"
#include "pool.h"

using namespace atari;

namespace {

struct Description {
  const uint8_t* rom;
  int32_t rom_size, scheme, paddles, first_line, height, max_lines, hmove_blanks, color_loss;
  const int32_t *over, *score, *reward, *lives, *flag;
  int32_t initial[kVariables];
  const uint8_t *start, *first_start;
  int32_t start_length, first_length, difficulty, right_port, ignored, paddle_high, start_frames;
};

// Owns the data that a Game points to.
struct OwnedGame {
  Game game{};
  std::vector<uint8_t> rom, start_actions, first_actions;
  std::vector<int32_t> code[5];
  Start start;

  static std::vector<int32_t> copy(const int32_t* code) {
    std::vector<int32_t> out;
    if (!code) return out;
    for (const int32_t* at = code; *at != kEnd; at++) {
      out.push_back(*at);
      if (*at > kEnd && *at <= kHas) out.push_back(*++at);
    }
    out.push_back(kEnd);
    return out;
  }

  explicit OwnedGame(const Description& d)
      : rom(d.rom, d.rom + d.rom_size), start_actions(d.start, d.start + d.start_length),
        first_actions(d.first_start, d.first_start + d.first_length),
        code{copy(d.over), copy(d.score), copy(d.reward), copy(d.lives), copy(d.flag)} {
    rom.resize(16384);
    auto get = [&](int k) { return code[k].empty() ? nullptr : code[k].data(); };
    game.cart = Cartridge{rom.data(), uint32_t(d.rom_size), uint8_t(d.scheme), uint8_t(d.paddles), uint16_t(d.first_line),
                          uint16_t(d.height), uint16_t(d.max_lines), uint8_t(d.hmove_blanks), uint8_t(d.color_loss)};
    game.rules = Rules{get(0), get(1), get(2), get(3), get(4)};
    for (int k = 0; k < kVariables; k++) game.initial[k] = d.initial[k];
    game.start = start_actions.data();
    game.start_length = d.start_length;
    game.first_start = first_actions.data();
    game.first_length = d.first_length;
    game.difficulty = uint8_t(d.difficulty);
    game.right_port = uint8_t(d.right_port);
    game.ignored = uint32_t(d.ignored);
    game.paddle_high = d.paddle_high;
    game.start_frames = d.start_frames;
    start.screens.assign(size_t(2) * d.height * kWidth, 0);
    boot(start.player, game, start.noise);
    start_episode(start.player, game, start.noise, start.screens.data());
  }
};

// One console with a real power switch, as in ale-py, for comparisons.
struct Console {
  const OwnedGame& of;
  Noise noise{4753849};
  Player player;
  std::vector<uint8_t> screens, earlier_screens, spare;

  explicit Console(const OwnedGame& g) : of(g), screens(g.start.screens.size()), spare(screens.size() / 2) {
    boot(player, of.game, noise);
  }

  const uint8_t* screen() const { return screens.data() + player.s.buffer * spare.size(); }

  // A frame of each action until the episode ends. Writes the values [channels, 256] of the picture to `out` [channels,
  // height, 160], and returns the reward.
  int play(const uint8_t* actions, const Protocol& protocol, const uint8_t* values, uint8_t* out) {
    const Player before = player;
    earlier_screens = screens;
    AgentStep step(protocol);
    while (!step.finished) {
      const bool sure = step.sure;
      step.start(player, of.game, protocol, actions[step.frame], screens.data(), spare.data());
      step.end(player, before, protocol, emulate(player, of.game, player.held, step.draws ? screens.data() : nullptr));
      if (step.sure != sure) screens = earlier_screens;
    }
    for (int c = 0; c < protocol.channels; c++) {
      Eye::whole(values + 256 * c, screen(), step.earlier, of.game.cart.height, out + c * spare.size());
    }
    return int(step.reward);
  }
};

// Appends to a pack, and counts the bytes if there is no memory for it.
class Packer {
 public:
  explicit Packer(uint8_t* out, int64_t at) : out_(out), at_(at) {}

  template <class T>
  int64_t add(const T* data, size_t count) {
    at_ = (at_ + 15) / 16 * 16;
    if (out_) std::memcpy(out_ + at_, data, count * sizeof(T));
    const int64_t offset = at_;
    at_ += int64_t(count * sizeof(T));
    return offset;
  }
  template <class T>
  const T* pointer(const T* data, size_t count) {
    return reinterpret_cast<const T*>(data ? add(data, count) : 0);
  }
  int64_t size() const { return at_; }

 private:
  uint8_t* out_;
  int64_t at_;
};

// `palette` is [channels, 256].
PackedGame pack_game(const OwnedGame& of, const Protocol& protocol, const uint8_t* palette, const int32_t* actions,
                     int action_count, int which, Packer& packer) {
  PackedGame g{};
  g.game = of.game;
  g.game.cart.rom = packer.pointer(of.rom.data(), of.rom.size());
  auto rule = [&](int k) { return packer.pointer(of.code[k].empty() ? nullptr : of.code[k].data(), of.code[k].size()); };
  g.game.rules = Rules{rule(0), rule(1), rule(2), rule(3), rule(4)};
  g.game.start = packer.pointer(of.start_actions.data(), of.start_actions.size());
  g.game.first_start = nullptr;
  std::vector<Player> players;
  std::vector<uint8_t> screens = of.start.screens, all;
  Player p = of.start.player;
  p.game = uint8_t(which);
  for (int k = 0; k <= protocol.noop_max; k++) {
    if (k && !p.variables[kOver]) emulate(p, of.game, kNoop, screens.data());
    players.push_back(p);
    all.insert(all.end(), screens.begin(), screens.end());
  }
  g.starts = packer.add(players.data(), players.size());
  g.start_screens = packer.add(all.data(), all.size());
  for (int k = 0; k < action_count; k++) g.actions[k] = actions[k];
  g.action_count = action_count;
  std::memcpy(g.palette, palette, 768);
  auto axis = [&](const Axis& a) {
    return PackedAxis{packer.add(a.cells.data(), a.cells.size()), packer.add(a.weights.data(), a.weights.size()), a.most};
  };
  const Scaling scaling(of.game.cart.height, kWidth, protocol.height, protocol.width);
  g.rows = axis(scaling.rows);
  g.columns = axis(scaling.columns);
  g.filter = scaling.filter;
  return g;
}

}  // namespace

extern "C" {

// Writes the pack of `n` games to `out`, or only returns its size in bytes if `out` is null. Palettes are [n, 3, 256], and
// actions [n, 18].
int64_t atari_pack(const OwnedGame* const* games, int n, const Protocol* protocol, const uint8_t* palettes,
                   const int32_t* actions, const int32_t* action_counts, uint8_t* out) {
  Pack pack{*protocol, n, 0, 0};
  Packer packer(out, int64_t(sizeof(Pack) + n * sizeof(PackedGame)));
  std::vector<PackedGame> packed;
  for (int k = 0; k < n; k++) {
    packed.push_back(pack_game(*games[k], *protocol, palettes + 768 * k, actions + 18 * k, action_counts[k], k, packer));
    if (games[k]->game.cart.height > pack.rows) pack.rows = games[k]->game.cart.height;
  }
  pack.bytes = packer.size();
  if (out) {
    std::memcpy(out, &pack, sizeof(Pack));
    std::memcpy(out + sizeof(Pack), packed.data(), packed.size() * sizeof(PackedGame));
  }
  return pack.bytes;
}

int atari_player_size() { return int(sizeof(Player)); }
int atari_player_offset(int field) {
  const size_t offsets[] = {offsetof(Player, game), offsetof(Player, variables) + kLives * sizeof(int32_t),
                            offsetof(Player, frames), offsetof(Player, s.riot.ram), offsetof(Player, s.buffer),
                            offsetof(Player, s.cpu.pc)};
  return int(offsets[field]);
}

int atari_evaluate(const int32_t* code, const uint8_t* memory, const int32_t* variables) {
  return evaluate(code, {memory, memory + 128}, variables);
}

OwnedGame* atari_game_new(const Description* d) { return new OwnedGame(*d); }
void atari_game_free(OwnedGame* g) { delete g; }

Console* atari_console_new(const OwnedGame* g) { return new Console(*g); }
void atari_console_free(Console* c) { delete c; }
void atari_console_reset(Console* c) {
  start_episode(c->player, c->of.game, c->noise, c->screens.data());
}
void atari_console_start(Console* c) {
  c->player = c->of.start.player;
  c->screens = c->of.start.screens;
}
int atari_console_act(Console* c, int action, int draw) {
  return emulate(c->player, c->of.game, uint32_t(action), draw ? c->screens.data() : nullptr);
}
int atari_console_play(Console* c, const uint8_t* actions, int n, int max_frames, const uint8_t* values, int channels,
                       uint8_t* out) {
  Protocol protocol{};
  protocol.frame_skip = n;
  protocol.max_frames = max_frames;
  protocol.channels = channels;
  protocol.maximum = 1;
  return c->play(actions, protocol, values, out);
}
int atari_console_over(const Console* c) { return c->player.variables[kOver] != 0; }
int atari_console_lives(const Console* c) { return c->player.variables[kLives]; }
int atari_console_frames(const Console* c) { return c->player.frames; }
int atari_console_whole(const Console* c) { return c->player.s.tia.drawn >= c->player.s.tia.display_stop; }
uint8_t* atari_console_ram(Console* c) { return c->player.s.riot.ram; }
Player* atari_console_player(Console* c) { return &c->player; }
const uint8_t* atari_console_screen(Console* c) { return c->screen(); }

// Null without enough memory or threads.
Vector* atari_vector_new(const OwnedGame* g, const Protocol* protocol, const uint8_t* palette, int n, int threads) {
  try {
    return new Vector(g->game, *protocol, palette, g->start, n, threads);
  } catch (...) {
    return nullptr;
  }
}
void atari_vector_free(Vector* v) { delete v; }
void atari_vector_send(Vector* v, const int32_t* actions, const uint8_t* reset, const int64_t* seeds, const Outputs* out) {
  v->send(actions, reset, seeds, *out);
}
void atari_vector_recv(Vector* v) { v->recv(); }
Player* atari_vector_player(Vector* v, int k) { return &v->player(k); }
uint8_t* atari_vector_screens(Vector* v, int k) { return v->screens(k); }
int64_t atari_vector_screens_size(const Vector* v) { return int64_t(v->screens_size()); }


// Null without enough memory or threads.
Pool* atari_pool_new(const OwnedGame* g, const PoolSettings* settings, const uint8_t* palette, int n) {
  try {
    return new Pool(g->game, *settings, palette, g->start, n);
  } catch (...) {
    return nullptr;
  }
}
void atari_pool_free(Pool* p) { delete p; }
void atari_pool_reset(Pool* p, const int32_t* ids, const int64_t* seeds, int count) { p->reset(ids, seeds, count); }
void atari_pool_report(Pool* p, const int32_t* ids, int count) { p->report(ids, count); }
void atari_pool_send(Pool* p, const int32_t* ids, const int32_t* actions, int count) { p->send(ids, actions, count); }
void atari_pool_recv(Pool* p, const PoolOutputs* out) { p->recv(*out); }

}  // extern "C"
