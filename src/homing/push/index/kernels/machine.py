"""What numba has no words for: a pointer, trailing zeros, fetching, ANDing, comparing whole cache lines."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import FLAG, LINE, RECORD_LANES


@intrinsic
def pointer(_typing, _address):
    """A pointer from an address."""

    def generate(_context, builder, _signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


@kernel()
def block_at(table, i):
    """Block number i of a table of (address, words) pairs."""
    return carray(pointer(table[2 * i]), (np.int64(table[2 * i + 1]),), np.uint64)


@intrinsic
def lowest_bit(_typing, _word):
    """The index of the lowest set bit, as one instruction."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


@intrinsic
def and_lines(_typing, block, offsets, begin, end, result):
    """result[:LINE] = the AND of the cache lines of `block` at offsets[begin:end], as vectors."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.IntType(64), LINE).as_pointer()
        block, offsets, result = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 4)
        )

        def line(i):
            offset = builder.load(builder.gep(offsets, [i]))
            return builder.load(builder.bitcast(builder.gep(block, [offset]), vector), align=8)

        one = ir.Constant(ir.IntType(64), 1)
        total = cgutils.alloca_once_value(builder, line(args[2]))
        with cgutils.for_range_slice(builder, builder.add(args[2], one), args[3], one) as (i, _):
            builder.store(builder.and_(builder.load(total), line(i)), total)
        builder.store(builder.load(total), builder.bitcast(result, vector), align=8)
        return context.get_dummy_value()

    return types.void(block, offsets, begin, end, result), generate


# Words that are looked at together in a bitmap over publications: what a vector register holds.
WINDOW = 4


@intrinsic
def window_and(_typing, bits, low, high, word, a, b, c, d, e, f, left, k):
    """left[WINDOW * k:] = bits[low:] ^ bits[high:], and (bits[a + word:] ^ bits[b + word:]), and so on.

    Returns 1, or 0 if nothing stays.
    """

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.IntType(64), WINDOW)
        bits, left = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 10)
        )
        here = builder.gep(bits, [args[3]])

        def between(data, one, other):
            places = (builder.gep(data, [offset]) for offset in (one, other))
            rows = [
                builder.load(builder.bitcast(place, vector.as_pointer()), align=8)
                for place in places
            ]
            return builder.xor(*rows)

        stays = between(bits, args[1], args[2])
        for i in (4, 6, 8):
            stays = builder.and_(stays, between(here, args[i], args[i + 1]))
        place = builder.gep(left, [builder.mul(args[11], ir.Constant(ir.IntType(64), WINDOW))])
        builder.store(stays, builder.bitcast(place, vector.as_pointer()), align=8)
        whole = builder.bitcast(stays, ir.IntType(64 * WINDOW))
        some = builder.icmp_unsigned("!=", whole, ir.Constant(whole.type, 0))
        return builder.zext(some, ir.IntType(64))

    return types.uint64(bits, low, high, word, a, b, c, d, e, f, left, k), generate


@intrinsic
def compared(_typing, block, record, codes, begin):
    """2 if codes[begin:] lie inside of a record, 1 if some lie on its edge, 0 if some lie outside."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.IntType(16), RECORD_LANES)
        block, codes = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2)
        )

        def load(data, offset):
            place = builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())
            return builder.load(place, align=8)

        def everywhere(above, below):
            both = builder.and_(
                builder.icmp_unsigned(above, mine, low), builder.icmp_unsigned(below, mine, high)
            )
            bits = builder.bitcast(both, ir.IntType(RECORD_LANES))
            wanted = ir.Constant(bits.type, (1 << FLAG + 1) - 1)
            all_there = builder.icmp_unsigned("==", builder.and_(bits, wanted), wanted)
            return builder.zext(all_there, ir.IntType(64))

        half = ir.Constant(ir.IntType(64), LINE // 2)
        mine = load(codes, args[3])
        low, high = load(block, args[1]), load(block, builder.add(args[1], half))
        return builder.add(everywhere(">=", "<="), everywhere(">", "<"))

    return types.uint64(block, record, codes, begin), generate


@intrinsic
def fetch(_typing, block, offset):
    """Ask for the cache line of block[offset] without waiting for it."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), cgutils.voidptr_t)
        number = ir.IntType(32)
        called = builder.module.declare_intrinsic(
            "llvm.prefetch",
            (cgutils.voidptr_t,),
            ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number]),
        )
        read, keep, data_cache = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(called, [address, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(block, offset), generate
