// Evaluation of the rules for score, lives and end, which rules.py compiles to small programs.
#pragma once
#include "platform.h"

namespace atari {

// Operations of a stack machine on int32; an operation with an operand is followed by it.
enum Operation : int32_t {
  kEnd, kConstant, kByte, kDecimal, kLow, kHigh, kVariable, kHas,                    // the upper ones have an operand
  kAdd, kSub, kMul, kDiv, kMod, kAnd, kOr, kXor, kShl, kShr, kNeg, kNot,
  kEq, kNe, kLt, kLe, kGt, kGe, kBothTrue, kAnyTrue, kSelect,
};
enum Variable : int32_t { kScore, kNew, kLives, kOver, kFlag, kVariables };
constexpr int kStack = 24;  // rules.py rejects deeper programs

struct Rules {
  const int32_t *over, *score, *reward, *lives, *flag;  // in the order of their evaluation; null: nothing to do
};

struct Memory {
  const uint8_t *ram, *cart_ram;  // of 128 bytes each; rules address them as 0 to 127 and as 128 to 255
};

// Whether one of the bytes from `first` to `last` has a value. The operand holds first, last and value.
ATARI_FN inline int32_t has(const uint8_t* ram, int32_t operand) {
  for (int32_t k = operand & 127; k <= (operand >> 8 & 127); k++)
    if (ram[k] == operand >> 16) return 1;
  return 0;
}

ATARI_FN inline int32_t evaluate(const int32_t* code, Memory memory, const int32_t* variables) {
  int32_t stack[kStack];
  int top = -1;
  for (;;) {
    const int32_t op = *code++;
    if (op == kEnd) return stack[0];
    if (op <= kHas) {
      const int32_t operand = *code++;
      const uint8_t* bytes = operand & 128 ? memory.cart_ram : memory.ram;
      const int32_t byte = op >= kByte && op <= kHigh ? bytes[operand & 127] : 0;
      stack[++top] = op == kConstant   ? operand
                     : op == kByte     ? byte
                     : op == kDecimal  ? (byte >> 4) * 10 + (byte & 15)
                     : op == kLow      ? byte & 15
                     : op == kHigh     ? byte >> 4
                     : op == kVariable ? variables[operand]
                                       : has(memory.ram, operand);
      continue;
    }
    if (op == kNeg || op == kNot) {
      stack[top] = op == kNeg ? -stack[top] : !stack[top];
      continue;
    }
    if (op == kSelect) {  // value if true, condition, value if false
      top -= 2;
      stack[top] = stack[top + 1] ? stack[top] : stack[top + 2];
      continue;
    }
    const int32_t b = stack[top--], a = stack[top];
    int32_t r = 0;
    switch (op) {
      case kAdd: r = a + b; break;
      case kSub: r = a - b; break;
      case kMul: r = a * b; break;
      case kDiv: r = b ? a / b : 0; break;
      case kMod: r = b ? a % b : 0; break;
      case kAnd: r = a & b; break;
      case kOr: r = a | b; break;
      case kXor: r = a ^ b; break;
      case kShl: r = int32_t(uint32_t(a) << (b & 31)); break;
      case kShr: r = a >> (b & 31); break;
      case kEq: r = a == b; break;
      case kNe: r = a != b; break;
      case kLt: r = a < b; break;
      case kLe: r = a <= b; break;
      case kGt: r = a > b; break;
      case kGe: r = a >= b; break;
      case kBothTrue: r = a && b; break;
      case kAnyTrue: r = a || b; break;
      default: break;
    }
    stack[top] = r;
  }
}

// Evaluates the rules after a frame and returns its reward.
ATARI_FN inline int32_t judge(const Rules& rules, Memory memory, int32_t* v) {
  if (rules.over) v[kOver] = evaluate(rules.over, memory, v);
  v[kNew] = rules.score ? evaluate(rules.score, memory, v) : 0;
  const int32_t reward = rules.reward ? evaluate(rules.reward, memory, v) : v[kNew] - v[kScore];
  v[kScore] = v[kNew];
  if (rules.lives) v[kLives] = evaluate(rules.lives, memory, v);
  if (rules.flag) v[kFlag] = evaluate(rules.flag, memory, v);
  return reward;
}

}  // namespace atari
