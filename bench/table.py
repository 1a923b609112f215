"""The results of bench/peers.py as a Markdown table: python3 bench/table.py FILE.json"""

import json
import math
import sys


def main():
    with open(sys.argv[1]) as file:
        rows = json.load(file)["rows"]
    seqlens = sorted({row["seqlen"] for row in rows})
    lines = {}
    for row in rows:
        lines.setdefault((row["head_dim"], row["mask"]), {})[row["seqlen"]] = row["tflops"]
    print("| head_dim, mask | " + " | ".join(map(str, seqlens)) + " | Kiln / cuDNN |")
    print("|---|" + "---|" * (len(seqlens) + 1))
    for (head_dim, mask), line in lines.items():
        cells = [f"{line[s]['kiln']:.0f} ({line[s]['cudnn']:.0f})" for s in seqlens]
        logs = [math.log(line[s]["kiln"] / line[s]["cudnn"]) for s in seqlens]
        mean = math.exp(sum(logs) / len(logs))
        print(f"| {head_dim} {mask} | " + " | ".join(cells) + f" | {mean:.2f} |")


if __name__ == "__main__":
    main()
