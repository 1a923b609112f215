"""The Python binding on the emulator, with tensors that are as little as it asks for: what it
refuses before a kernel that goes by addresses alone would take one tensor for another.

    python3 tests/cli/bindings.py      KILN_LIBRARY names the library; run by bindings.sh
"""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bindings", "python"))
import kiln  # noqa: E402

EMULATOR = -2
BATCH, SEQLEN_Q, SEQLEN_K, HEADS, HEADS_K, DIM, DIM_V = 2, 40, 50, 4, 2, 64, 32


class Tensor:
    """Device memory with what the binding asks of a tensor."""

    def __init__(self, context, shape, dtype="torch.float16", strides=None):
        self.shape, self.dtype = tuple(shape), dtype
        self.strides, count = [], 1
        for n in reversed(self.shape):
            self.strides.insert(0, count)
            count *= n
        self.strides = strides or self.strides
        self.count, address = count, ctypes.c_void_p()
        size = ctypes.c_size_t(count * self.element_size())
        context.check(kiln._library.kiln_memory_alloc(context._handle, size, ctypes.byref(address)))
        zeros = bytes(count * self.element_size())
        context.check(kiln._library.kiln_memory_upload(context._handle, address, zeros, size))
        self.address = address.value

    def data_ptr(self):
        return self.address

    def stride(self, dim=None):
        return tuple(self.strides) if dim is None else self.strides[dim]

    def numel(self):
        return self.count

    def element_size(self):
        return {"torch.uint8": 1, "torch.float32": 4}.get(self.dtype, 2)


def refusals(tensor, plan, forward, context, q, k, v, o, lse, gradients, workspace):
    """What is done, and what the sentence must hold."""
    do, dq, dk, dv = gradients
    fp32 = "torch.float32"

    def run(q=q, k=k, v=v, o=o, lse=lse, gradients=gradients):
        return lambda: plan.run(q, k, v, o, lse, workspace=workspace, gradients=gradients)

    return [
        (run(gradients=()), "it needs gradients"),
        (run(gradients=gradients[:3]), "gradients has 3 tensors"),
        (run(gradients=gradients + (dv,)), "gradients has 5 tensors"),
        (run(gradients=(do, tensor(dq.shape, fp32), dk, dv)), "dq is float32"),
        (
            run(gradients=(do, dk, dq, dv)),
            "dq is float16 (2, 50, 2, 64): it must be float16 (2, 40",
        ),
        (run(gradients=(do, dq, dk, tensor(dk.shape))), "dv is float16 (2, 50, 2, 64)"),
        (run(gradients=(dq, dq, dk, dv)), "dout is float16 (2, 40, 4, 64)"),
        (
            run(gradients=(do, tensor(dq.shape, strides=[10240, 256, 1, 4]), dk, dv)),
            "the last dimension of dq",
        ),
        (run(lse=tensor(lse.shape)), "lse is float16"),
        (run(lse=tensor((2, 40, 4), fp32)), "lse is float32 (2, 40, 4)"),
        (run(lse=tensor(lse.shape, fp32, strides=[160, 1, 4])), "lse must be contiguous"),
        (run(lse=None), "lse is NULL"),
        (run(v=tensor((2, 49, 2, 32))), "v is float16 (2, 49, 2, 32)"),
        (run(k=tensor(k.shape, "torch.bfloat16")), "k is bfloat16"),
        (run(o=tensor(q.shape)), "o is float16 (2, 40, 4, 64)"),
        (lambda: forward.run(q, k, v, o, gradients=gradients), "the plan is for the forward pass"),
        (lambda: forward.run(q, k, dk, tensor(q.shape)), "head_dim and head_dim_v 64 and 32"),
        (lambda: context.plan(q, k, v, o, backward=True), "backward needs gradients"),
        (lambda: context.plan(tensor((2, 40, 256)), k, v, o), "must have 4 dimensions"),
        (lambda: context.plan(q, k, v, o, algorithm="flush"), "algorithm 'flush'"),
        (lambda: context.plan(q, k, v, o, arch="sm_" + 16 * "9"), "is none that Kiln knows"),
    ]


def refuses(action, expected):
    try:
        action()
    except Exception as error:
        if isinstance(error, kiln.Error) and expected in str(error):
            return True
        print(f"FAILED: said: {error!r}\n  wanted: {expected}", file=sys.stderr)
        return False
    print(f"FAILED: nothing was refused; wanted: {expected}", file=sys.stderr)
    return False


def main():
    context = kiln.Context(EMULATOR)

    def tensor(shape, dtype="torch.float16", strides=None):
        return Tensor(context, shape, dtype, strides)

    q, o = tensor((BATCH, SEQLEN_Q, HEADS, DIM)), tensor((BATCH, SEQLEN_Q, HEADS, DIM_V))
    k, v = tensor((BATCH, SEQLEN_K, HEADS_K, DIM)), tensor((BATCH, SEQLEN_K, HEADS_K, DIM_V))
    lse = tensor((BATCH, HEADS, SEQLEN_Q), "torch.float32")
    gradients = tuple(tensor(x.shape) for x in (o, q, k, v))
    forward = context.plan(q, k, v, o)
    forward.run(q, k, v, o, lse)
    plan = context.plan(q, k, v, o, backward=True, gradients=gradients)
    workspace = tensor((plan.workspace_bytes,), "torch.uint8")
    plan.run(q, k, v, o, lse, workspace=workspace, gradients=gradients)
    cases = refusals(tensor, plan, forward, context, q, k, v, o, lse, gradients, workspace)
    passed = sum(refuses(*case) for case in cases)
    print(f"{passed} passed, {len(cases) - passed} failed")
    return passed < len(cases)


if __name__ == "__main__":
    sys.exit(main())
