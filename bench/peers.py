"""Kiln beside its peers, in one process, interleaved: cuDNN and FlashAttention-2 in PyTorch.

    python3 bench/peers.py [--out FILE.json] [--rounds N] [--dtype bf16|fp16] [--ampere] SHAPES...

SHAPES: grid (head_dim 64, 128, 256 x none, causal x seqlen 512 ... 16384, 16,384 tokens, hidden
size 2,048), or HEAD_DIM:MASK:SEQLEN, for example 128:causal:4096. Engines of a row run one after
another, `rounds` times in an order drawn anew, by device events around calls with a flushed L2
cache; the median of the medians counts. Inputs are random and normal. FLOPs are 4 b h s^2 d, half
of it when causal. Figures of different runs are not comparable: power and clocks move them by
several per cent; ratios within one run are.
"""

import argparse
import json
import math
import os
import random
import sys

import torch
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bindings", "python")
)
import kiln  # noqa: E402

TOKENS, HIDDEN = 16384, 2048
SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


def peer(backend, q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        with sdpa_kernel(backend):
            scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def engines(context, head_dim, causal, seqlen, dtype, with_ampere):
    shape = (max(1, TOKENS // seqlen), seqlen, HIDDEN // head_dim, head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    o = torch.empty_like(q)
    lse = torch.empty(shape[0], shape[2], seqlen, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    found = {
        "cudnn": peer(SDPBackend.CUDNN_ATTENTION, q, k, v, causal),
        "fa2": peer(SDPBackend.FLASH_ATTENTION, q, k, v, causal),
    }
    for name, arch in (("kiln", ""), ("kiln-ampere", "sm_90"))[: 2 if with_ampere else 1]:
        launch = context.plan(q, k, v, o, causal=causal, arch=arch).bind(q, k, v, o, lse)
        found[name] = lambda launch=launch: launch(stream)
    flops = 4 * shape[0] * shape[2] * seqlen * seqlen * head_dim * (0.5 if causal else 1)
    return found, flops


def measure(found, rounds):
    times = {name: [] for name in found}
    for _ in range(rounds):
        # In a fixed order the same engine would always follow the one that heats the GPU most.
        for name, run in random.sample(list(found.items()), len(found)):
            times[name].append(triton.testing.do_bench(run, warmup=5, rep=20, return_mode="median"))
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def rows(shapes):
    for shape in shapes:
        if shape == "grid":
            for head_dim in (64, 128, 256):
                for mask in ("none", "causal"):
                    yield from ((head_dim, mask, seqlen) for seqlen in SEQLENS)
        else:
            head_dim, mask, seqlen = shape.split(":")
            yield int(head_dim), mask, int(seqlen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", nargs="+")
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp16"))
    parser.add_argument(
        "--ampere", action="store_true", help="also Kiln's mma.sync kernels, as sm_90 code"
    )
    given = parser.parse_args()
    dtype = torch.bfloat16 if given.dtype == "bf16" else torch.float16
    context, results, logs = kiln.Context(0), [], {}
    for head_dim, mask, seqlen in rows(given.shapes):
        found, flops = engines(context, head_dim, mask == "causal", seqlen, dtype, given.ampere)
        rates = {name: flops / ms / 1e9 for name, ms in measure(found, given.rounds).items()}
        results.append(
            {
                "head_dim": head_dim,
                "mask": mask,
                "seqlen": seqlen,
                "dtype": given.dtype,
                "tflops": rates,
            }
        )
        ratio = rates["kiln"] / rates["cudnn"]
        logs.setdefault((head_dim, mask), []).append(math.log(ratio))
        print(
            f"{head_dim} {mask} {seqlen}: "
            + "  ".join(f"{n} {r:.0f}" for n, r in rates.items())
            + f"  kiln/cudnn {ratio:.2f}",
            flush=True,
        )
    for (head_dim, mask), x in logs.items():
        print(f"geometric mean of kiln/cudnn, {head_dim} {mask}: {math.exp(sum(x) / len(x)):.3f}")
    every = [x for row in logs.values() for x in row]
    print(
        f"geometric mean of kiln/cudnn, all {len(every)}: {math.exp(sum(every) / len(every)):.3f}"
    )
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
