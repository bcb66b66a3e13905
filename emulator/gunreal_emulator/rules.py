"""Compiles rules, which are expressions over a game's memory such as `100 * bcd(0xE6) + bcd(0xE8)`.

The emulator evaluates the compiled rules with a stack machine. Rules may use

- `m(a)`, the byte at address `a` (0x80 to 0xFF, or 0xF080 to 0xF0FF for the RAM of the cartridge),
- `bcd(a)`, this byte as two decimal digits,
- `lo(a)` and `hi(a)`, the lower and the upper four bits of this byte,
- `has(a, b, value)`, whether one of the bytes from `a` to `b` (0x80 to 0xFF) equals `value`,
- `score` and `new`, the scores after the previous and the current frame,
- `lives`, `over` and `flag`, the latest values of these rules.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

VARIABLES = ("score", "new", "lives", "over", "flag")
STACK = 24
_LOADS = {"m": 2, "bcd": 3, "lo": 4, "hi": 5}
_BINARY = {ast.Add: 8, ast.Sub: 9, ast.Mult: 10, ast.FloorDiv: 11, ast.Mod: 12, ast.BitAnd: 13, ast.BitOr: 14,
           ast.BitXor: 15, ast.LShift: 16, ast.RShift: 17}  # fmt: skip
_UNARY = {ast.USub: 18, ast.Not: 19}
_COMPARE = {ast.Eq: 20, ast.NotEq: 21, ast.Lt: 22, ast.LtE: 23, ast.Gt: 24, ast.GtE: 25}
_BOOL = {ast.And: 26, ast.Or: 27}
_LARGEST = 2**31 - 1
_END, _CONSTANT, _VARIABLE, _HAS, _SELECT = 0, 1, 6, 7, 28


def compile_rule(expression: str) -> np.ndarray:
    """Compiles an expression to a program, int32 `[length]`. Raises ValueError if the expression is invalid."""
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is not an expression: {error.msg}") from error
    code, depth = _emit(tree.body)
    if depth > STACK:
        raise ValueError(f"{expression!r} needs {depth} stack entries, more than {STACK}; use less nesting")
    return np.array([*code, _END], np.int32)


def _emit(node: ast.AST) -> tuple[list[int], int]:
    """Returns the code of a node and the stack depth that it needs."""
    match node:
        case ast.Constant(value=int(value)):
            if value > _LARGEST:
                raise ValueError(f"{value} is too large for a rule; numbers have 32 bits")
            return [_CONSTANT, value], 1
        case ast.Name(id=name) if name in VARIABLES:
            return [_VARIABLE, VARIABLES.index(name)], 1
        case ast.Call(func=ast.Name(id=load), args=[ast.Constant(value=int(address))]) if load in _LOADS:
            if not (0x80 <= address <= 0xFF or 0xF080 <= address <= 0xF0FF):
                raise ValueError(f"{load}({address:#x}): the address must be 0x80 to 0xFF, or 0xF080 to 0xF0FF")
            return [_LOADS[load], address & 127 | address >> 8 & 128], 1
        case ast.Call(
            func=ast.Name(id="has"), args=[ast.Constant(int(first)), ast.Constant(int(last)), ast.Constant(int(value))]
        ):
            if not 0x80 <= first <= last <= 0xFF:
                raise ValueError(f"{ast.unparse(node)}: the addresses must ascend from 0x80 to 0xFF")
            if value > 0xFF:
                raise ValueError(f"{ast.unparse(node)}: a byte is at most 0xFF")
            return [_HAS, first & 127 | (last & 127) << 8 | value << 16], 1
        case ast.BinOp(left=left, op=operator, right=right):
            return _join([left, right], _operation(_BINARY, operator, node))
        case ast.UnaryOp(op=operator, operand=operand):
            code, depth = _emit(operand)
            return [*code, _operation(_UNARY, operator, node)], depth
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _join([left, right], _operation(_COMPARE, operator, node))
        case ast.Compare(left=left, ops=operators, comparators=rights):
            pairs = zip([left, *rights[:-1]], operators, rights, strict=True)
            return _emit(ast.BoolOp(ast.And(), [ast.Compare(a, [op], [b]) for a, op, b in pairs]))
        case ast.BoolOp(op=operator, values=values):
            return _join(values, _BOOL[type(operator)])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            parts = [_emit(body), _emit(test), _emit(orelse)]
            code = [op for part in parts for op in part[0]]
            return [*code, _SELECT], max(k + depth for k, (_, depth) in enumerate(parts))
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is not allowed in a rule")


def _operation(table: Mapping[Any, int], operator: ast.AST, node: ast.AST) -> int:
    if type(operator) not in table:
        raise ValueError(f"{ast.unparse(node)!r}: the operator {type(operator).__name__} is not allowed in a rule")
    return table[type(operator)]


def _join(nodes: list[ast.expr], operation: int) -> tuple[list[int], int]:
    code, depth = _emit(nodes[0])
    for node in nodes[1:]:
        more, needed = _emit(node)
        code, depth = [*code, *more, operation], max(depth, needed + 1)
    return code, depth
