"""Gradients beside cuDNN's and FlashAttention-2's, on the same inputs, and what is deterministic.

    python3 tests/gpu/gradients.py          KILN_LIBRARY names the library

For every kernel, on normal inputs and with eight channels of q and k times 50: the relative RMS
error of each of dq, dk and dv, against fp64, is at most LIMIT times the better peer's (a peer that
refuses is left out); and deterministic gradients have the same bits in 30 runs beside a busy
stream. Outputs are filled with NaN first. Ends with `N passed, N failed`.
"""

import os
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bindings", "python")
)
import kiln  # noqa: E402

LIMIT, RUNS = 1.4, 30
BATCH, SEQLEN, HEADS = 2, 1000, 4
NAMES = ("dq", "dk", "dv")
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}


def inputs(dim, dtype, outliers):
    shape = (BATCH, SEQLEN, HEADS, dim)
    q, k, v, dout = (torch.randn(shape, device="cuda", dtype=torch.float64) for _ in range(4))
    if outliers:
        channels = torch.randperm(dim)[:8]
        q[..., channels] *= 50
        k[..., channels] *= 50
    return [x.to(dtype) for x in (q, k, v, dout)]


def by_autograd(q, k, v, dout, causal, backend):
    """dq, dk, dv of a backend; of the formulas, in the inputs' type, where it is None."""
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v))
    if backend:
        with sdpa_kernel(backend):
            o = scaled_dot_product_attention(q, k, v, is_causal=causal)
    else:
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if causal:
            hidden = torch.ones(s.shape[-2:], dtype=torch.bool, device="cuda").triu(1)
            s = s.masked_fill(hidden, float("-inf"))
        o = torch.softmax(s, -1) @ v
    gradients = torch.autograd.grad(o, (q, k, v), dout.transpose(1, 2).to(o.dtype))
    return [x.transpose(1, 2) for x in gradients]


def by_kiln(context, q, k, v, dout, causal, **choice):
    """A function that runs the gradients and gives dq, dk, dv."""
    o, lse = torch.empty_like(dout), torch.empty(BATCH, HEADS, SEQLEN, device="cuda")
    gradients = [torch.empty_like(x) for x in (q, k, v)]
    forward = context.plan(q, k, v, o, causal=causal)
    forward.run(q, k, v, o, lse)
    every = (dout, *gradients)
    plan = context.plan(q, k, v, o, causal=causal, backward=True, gradients=every, **choice)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()

    def run():
        for x in gradients:
            x.fill_(float("nan"))
        workspace.fill_(0xFF)
        plan.run(q, k, v, o, lse, workspace=workspace, gradients=every)
        torch.cuda.synchronize()
        return [x.clone() for x in gradients]

    return run


def errors(found, wanted):
    return [
        ((x.double() - y).norm() / y.norm()).item() if x.isfinite().all() else float("inf")
        for x, y in zip(found, wanted)
    ]


def check_accuracy(context, dim, dtype, causal, outliers, arch):
    q, k, v, dout = inputs(dim, dtype, outliers)
    wanted = by_autograd(*(x.double() for x in (q, k, v, dout)), causal, None)
    ours = errors(by_kiln(context, q, k, v, dout, causal, arch=arch)(), wanted)
    peers = {}
    for name, backend in BACKENDS.items():
        try:
            peers[name] = errors(by_autograd(q, k, v, dout, causal, backend), wanted)
        except RuntimeError as reason:
            print(f"{name} is left out: {str(reason).splitlines()[0]}", end="  ")
    if not peers:
        return False
    least = [min(each) for each in zip(*peers.values())]
    ratios = [x / y for x, y in zip(ours, least)]
    shown = "  ".join(
        f"{name} {ours[i]:.2e} (" + ", ".join(f"{e[i]:.2e}" for e in peers.values()) + ")"
        for i, name in enumerate(NAMES)
    )
    print(f"{shown}  worst ratio {max(ratios):.2f}")
    return max(ratios) <= LIMIT


def check_bits(context, dim, dtype, causal, arch):
    run = by_kiln(context, *inputs(dim, dtype, False), causal, arch=arch, deterministic=True)
    first, busy = run(), torch.cuda.Stream()
    square = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    for _ in range(RUNS - 1):
        with torch.cuda.stream(busy):
            for _ in range(8):
                square @ square
        if not all(torch.equal(x, y) for x, y in zip(first, run())):
            return False
    return True


def main():
    context, passed, failed = kiln.Context(0), 0, 0

    def judge(name, check, *given):
        nonlocal passed, failed
        print(name, end=": ", flush=True)
        ok = check(context, *given)
        passed, failed = passed + ok, failed + (not ok)
        print("passed" if ok else "FAILED", flush=True)

    for arch in ("sm_90a", "sm_90"):
        for dim in (64, 128, 256):
            for dtype in (torch.bfloat16, torch.float16):
                for causal in (False, True):
                    name = f"{arch} {dtype} {dim} {'causal' if causal else 'none'}"
                    for outliers in (False, True):
                        kind = f"{name}{' outliers' if outliers else ''}"
                        judge(kind, check_accuracy, dim, dtype, causal, outliers, arch)
                    judge(f"{name} {RUNS} runs", check_bits, dim, dtype, causal, arch)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
