"""Three things numba has no words for: a pointer, a count of trailing zeros, an AND of whole lines."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import LINE


@intrinsic
def _pointer(_typing, _address):
    """A pointer from an address."""

    def generate(_context, builder, _signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


@kernel()
def block_at(table, i):
    """Block number i of a table of (address, words) pairs."""
    return carray(_pointer(table[2 * i]), (np.int64(table[2 * i + 1]),), np.uint64)


@intrinsic
def lowest_bit(_typing, _word):
    """The index of the lowest set bit, as one instruction."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


@intrinsic
def and_lines(_typing, block, offsets, count, result):
    """result[:LINE] = the AND of the cache lines of `block` at offsets[:count], as vectors."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(ir.IntType(64), LINE).as_pointer()
        block, offsets, result = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 3)
        )

        def line(i):
            offset = builder.load(builder.gep(offsets, [i]))
            return builder.load(builder.bitcast(builder.gep(block, [offset]), vector), align=8)

        zero = ir.Constant(ir.IntType(64), 0)
        total = cgutils.alloca_once_value(builder, line(zero))
        one = ir.Constant(ir.IntType(64), 1)
        with cgutils.for_range_slice(builder, one, args[2], one) as (i, _):
            builder.store(builder.and_(builder.load(total), line(i)), total)
        builder.store(builder.load(total), builder.bitcast(result, vector), align=8)
        return context.get_dummy_value()

    return types.void(block, offsets, count, result), generate
