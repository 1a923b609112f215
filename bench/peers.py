"""Kiln beside its peers, in one process, interleaved: cuDNN and FlashAttention-2 in PyTorch.

    python3 bench/peers.py [--out FILE.json] [--samples N] [--dtype bf16|fp16]
                           [--backward] [--deterministic] [--ampere] [--standard] SHAPES...

SHAPES: names of the sets below (grid, short, ragged, dims, gqa, long, classic), or
HEAD_DIM[/HEAD_DIM_V]:MASK:SEQLEN[:BATCH:HEADS[:HEADS_K]], for example 128:causal:4096. What is not
given makes 16,384 tokens and a hidden size of 2,048.

Engines of a row take turns call by call, in an order drawn anew each turn, so that all meet the
same clocks: device events around one call, L2 flushed before it, the median of the samples. An
engine that refuses a shape is left out. Inputs are random and normal. FLOPs are
2 b h s^2 (head_dim + head_dim_v), half of it when causal, and 2.5 times as many in the backward
pass (--backward: everything between do and the gradients, from the forward pass's lse); `matmul`
is a product of 8192^3, the ceiling of the same minute. Figures of different runs are not
comparable: power and clocks move them by several per cent; ratios within one run are.
"""

import argparse
import json
import math
import os
import random
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bindings", "python")
)
import kiln  # noqa: E402

TOKENS, HIDDEN, MASKS = 16384, 2048, ("none", "causal")
FLUSH_BYTES, WARM_TURNS = 512 << 20, 5


def texts(head_dims, seqlens, masks=MASKS, rest=""):
    return [f"{d}:{mask}:{s}{rest}" for d in head_dims for mask in masks for s in seqlens]


SETS = {
    "grid": texts((64, 128, 256), (512, 1024, 2048, 4096, 8192, 16384)),
    "short": texts((64, 128, 256), (128, 256)),
    "ragged": texts((64, 128, 256), (113, 300, 1000)),
    "dims": [
        f"{d}:{mask}:{s}:{TOKENS // s}:16"
        for d in (64, 80, 96, 112, 128, 160, 192, "192/128", 256)
        for mask in MASKS
        for s in (1024, 4096, 16384)
    ],
    # Four query heads on each key head, beside as many key heads as query heads.
    "gqa": [f"128:{m}:{s}:{TOKENS // s}:32:8" for m in MASKS for s in (2048, 4096, 8192, 16384)],
    "long": ["128:causal:16384:1:16", "128:causal:131072:1:16"],
    "classic": texts((64,), (1024, 2048, 4096), ("none",), ":8:16"),
}


class Shape:
    def __init__(self, text, grouped=True):
        dims, self.mask, *sizes = text.split(":")
        self.head_dim, self.head_dim_v = (int(x) for x in (dims.split("/") * 2)[:2])
        self.seqlen, *rest = map(int, sizes)
        self.batch = rest[0] if rest else max(1, TOKENS // self.seqlen)
        self.heads = rest[1] if rest else HIDDEN // self.head_dim
        self.heads_k = rest[2] if len(rest) > 2 and grouped else self.heads
        self.text = text

    def tensors(self, dtype):
        """q, k, v, o, of shape (batch, seqlen, heads, head_dim)"""
        widths = (self.head_dim, self.head_dim, self.head_dim_v, self.head_dim_v)
        heads = (self.heads, self.heads_k, self.heads_k, self.heads)
        return [
            torch.randn(self.batch, self.seqlen, h, d, device="cuda", dtype=dtype)
            for h, d in zip(heads, widths)
        ]

    def flops(self, backward=False):
        pairs = self.batch * self.heads * self.seqlen**2 * (0.5 if self.mask == "causal" else 1)
        return 2 * pairs * (self.head_dim + self.head_dim_v) * (2.5 if backward else 1)


def peer(backend, q, k, v, causal):
    grouped = q.shape[2] != k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        with sdpa_kernel(backend):
            scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)

    return run


def peer_backward(backend, q, k, v, dout, causal):
    """The gradients alone, of a forward pass that runs here."""
    grouped = q.shape[2] != k.shape[2]
    q, k, v = (x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v))
    with sdpa_kernel(backend):
        o = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    return lambda: torch.autograd.grad(o, (q, k, v), dout.transpose(1, 2), retain_graph=True)


def own_backward(context, tensors, dout, causal, **choice):
    q, k, v, o = tensors
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")
    gradients = (dout, *(torch.empty_like(x) for x in (q, k, v)))
    forward = context.plan(q, k, v, o, causal=causal)
    forward.run(q, k, v, o, lse, stream=torch.cuda.current_stream().cuda_stream)
    torch.cuda.synchronize()
    plan = context.plan(q, k, v, o, causal=causal, backward=True, gradients=gradients, **choice)
    return bound(plan, (q, k, v, o, lse), gradients)


def own(context, tensors, causal, **choice):
    q, k, v, o = tensors
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], device="cuda")
    plan = context.plan(q, k, v, o, causal=causal, **choice)
    return bound(plan, (q, k, v, o, lse))


def bound(plan, tensors, gradients=()):
    workspace = torch.empty(max(1, plan.workspace_bytes), dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    launch = plan.bind(*tensors, workspace=workspace, gradients=gradients)
    return lambda: launch(stream)


def makers_backward(context, shape, dtype, given):
    tensors, causal = shape.tensors(dtype), shape.mask == "causal"
    q, k, v, o = tensors
    dout = torch.randn_like(o)
    makers = {
        "kiln": lambda: own_backward(context, tensors, dout, causal),
        "cudnn": lambda: peer_backward(SDPBackend.CUDNN_ATTENTION, q, k, v, dout, causal),
        "fa2": lambda: peer_backward(SDPBackend.FLASH_ATTENTION, q, k, v, dout, causal),
    }
    if given.deterministic:
        makers["kiln-deterministic"] = lambda: own_backward(
            context, tensors, dout, causal, deterministic=True
        )
    if given.ampere:
        makers["kiln-ampere"] = lambda: own_backward(context, tensors, dout, causal, arch="sm_90")
    if given.ampere and given.deterministic:
        makers["kiln-ampere-deterministic"] = lambda: own_backward(
            context, tensors, dout, causal, arch="sm_90", deterministic=True
        )
    return makers


def makers_forward(context, shape, dtype, given):
    tensors, causal = shape.tensors(dtype), shape.mask == "causal"
    q, k, v, _ = tensors
    makers = {
        "kiln": lambda: own(context, tensors, causal),
        "cudnn": lambda: peer(SDPBackend.CUDNN_ATTENTION, q, k, v, causal),
        "fa2": lambda: peer(SDPBackend.FLASH_ATTENTION, q, k, v, causal),
    }
    if shape.heads_k != shape.heads:
        every = [tensors[0], *Shape(shape.text, grouped=False).tensors(dtype)[1:]]
        makers["kiln-mha"] = lambda: own(context, every, causal)
    if dtype == torch.float16:
        makers["kiln-bf16"] = lambda: own(context, shape.tensors(torch.bfloat16), causal)
    if given.ampere:
        makers["kiln-ampere"] = lambda: own(context, tensors, causal, arch="sm_90")
    if given.standard:
        makers["math"] = lambda: peer(SDPBackend.MATH, q, k, v, causal)
        makers["kiln-standard"] = lambda: own(context, tensors, causal, algorithm="standard")
    return makers


def engines(context, shape, dtype, given):
    """name: (callable, FLOPs) of those that serve the shape"""
    makers = makers_backward if given.backward else makers_forward
    found = {}
    for name, make in makers(context, shape, dtype, given).items():
        try:
            run = make()
            run()
            torch.cuda.synchronize()
            found[name] = (run, shape.flops(given.backward))
        except (RuntimeError, torch.OutOfMemoryError) as reason:
            if name == "kiln":
                raise
            print(f"{shape.text}: {name} is left out: {str(reason).splitlines()[0]}")
    return found


def time_ms(run, flush):
    """Events around one call that finds nothing of its own in L2; both are still on their way."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flush.zero_()  # also keeps the GPU busy while the host enqueues the call
    start.record()
    run()
    stop.record()
    return start, stop


def measure(found, given):
    """name: milliseconds. Engines take turns call by call, in an order drawn anew each turn."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    events = {name: [] for name in found}
    for turn in range(WARM_TURNS + given.samples):
        for name, (run, _) in random.sample(list(found.items()), len(found)):
            event = time_ms(run, flush)
            if turn >= WARM_TURNS:
                events[name].append(event)
    torch.cuda.synchronize()
    return {
        name: statistics.median(start.elapsed_time(stop) for start, stop in pairs)
        for name, pairs in events.items()
    }


def measure_matmul(dtype, given):
    """TFLOP/s of a matrix product of 8192^3, apart: it would heat whoever came after it."""
    square = [torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2)]
    times = measure({"matmul": (lambda: torch.matmul(*square), 0)}, given)
    return 2 * 8192**3 / times["matmul"] / 1e9


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def summarize(results, ours, theirs):
    groups = {}
    for row in results:
        rates = row["tflops"]
        if ours in rates and theirs in rates:
            name = f"{row['head_dim']} {row['mask']}"
            groups.setdefault(name, []).append(rates[ours] / rates[theirs])
    every = [x for ratios in groups.values() for x in ratios]
    for name, ratios in list(groups.items()) + [(f"all {len(every)}", every)]:
        if ratios:
            mean = geometric_mean(ratios)
            print(f"{ours}/{theirs}, {name}: least {min(ratios):.2f}, geometric mean {mean:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--out")
    parser.add_argument("--samples", type=int, default=25, help="calls of an engine in a row")
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument("--backward", action="store_true", help="the gradients")
    parser.add_argument(
        "--deterministic", action="store_true", help="also Kiln's deterministic gradients"
    )
    parser.add_argument(
        "--ampere", action="store_true", help="also Kiln's mma.sync kernels, as sm_90 code"
    )
    parser.add_argument(
        "--standard", action="store_true", help="also standard attention, PyTorch's and Kiln's"
    )
    given = parser.parse_args()
    dtype = torch.bfloat16 if given.dtype == "bf16" else torch.float16
    context, results = kiln.Context(0), []
    for text in (text for name in given.shapes for text in SETS.get(name, [name])):
        shape = Shape(text)
        found = engines(context, shape, dtype, given)
        times = measure(found, given)
        rates = {name: found[name][1] / ms / 1e9 for name, ms in times.items()}
        rates["matmul"] = measure_matmul(dtype, given)
        row = {name: value for name, value in vars(shape).items() if name != "text"}
        name = "backward" if given.backward else "forward"
        results.append({**row, "pass": name, "dtype": given.dtype, "tflops": rates, "ms": times})
        print(f"{text}: " + "  ".join(f"{n} {r:.0f}" for n, r in rates.items()), flush=True)
    for ours, theirs in (
        ("kiln", "cudnn"),
        ("kiln", "matmul"),
        ("kiln", "kiln-mha"),
        ("kiln", "kiln-bf16"),
        ("kiln-ampere", "fa2"),
        ("kiln-deterministic", "kiln"),
    ):
        summarize(results, ours, theirs)
    if given.out:
        environment = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        with open(given.out, "w") as file:
            json.dump({"environment": environment, "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
