"""How good model and search are, on the records of exhaustive tunings.

    python3 bench/tuning.py JOURNAL [MORE...]

For every problem of a journal that an exhaustive tuning finished: the places that the measured best
and the choice (which may tie with it) have in the cost model's order, and what hillclimb would have
chosen from the same times (a replay, with their spread): its time over the best one, its
measurements over all. Where MORE journals hold the same problems, how many of their tunings chose
the same tile. The last lines sum up.
"""

import collections
import ctypes
import json
import os
import statistics
import sys

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bindings", "python")
)
import kiln

FIELDS = ("block_m", "block_n", "num_stages", "num_warps")
SIZES = ("batch", "seqlen_q", "seqlen_k", "num_heads", "num_heads_k")
TOP = 12


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("strategy", ctypes.c_char_p),
        ("budget_s", ctypes.c_double),
        ("records", ctypes.c_char_p),
        ("simulate", ctypes.c_char_p),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("tile", kiln._Tile),
        ("default_tile", kiln._Tile),
        ("time_us", ctypes.c_double),
        ("default_us", ctypes.c_double),
        ("predicted_us", ctypes.c_double),
        ("legal", ctypes.c_int32),
        ("known", ctypes.c_int32),
        ("failed", ctypes.c_int32),
        ("measured", ctypes.c_int32),
        ("samples", ctypes.c_int64),
        ("complete", ctypes.c_int32),
        ("from_records", ctypes.c_int32),
    ]


class Prediction(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("time_us", ctypes.c_double)]


def tile_of(row):
    return tuple(row[name] for name in FIELDS)


def choices(path):
    """The last finished tuning of every problem, by the problem as text."""
    found = {}
    for line in open(path):
        if '"choice"' in line and line.endswith("\n"):
            record = json.loads(line)
            if record["kind"] == "choice":
                found[json.dumps(record["problem"], sort_keys=True)] = record
    return found


class Judge:
    def __init__(self):
        self.context = kiln.Context(-1)
        self.handle = self.context._handle

    def spec(self, record):
        spec = kiln._Spec(ctypes.sizeof(kiln._Spec))
        for name in ("arch", "algorithm", "dtype", "head_dim", "head_dim_v", "mask"):
            text = str(record["problem"][name]).encode()
            self.context.check(
                kiln._library.kiln_attn_spec_set(
                    self.handle, ctypes.byref(spec), name.encode(), text
                )
            )
        return spec

    def shape(self, record):
        args = kiln._Args(ctypes.sizeof(kiln._Args), softmax_scale=-1.0)
        for name in SIZES:
            setattr(args, name, record["shape"][name])
        return args

    def predicted_us(self, record, tile):
        wanted = kiln._Tile(ctypes.sizeof(kiln._Tile), *tile)
        prediction = Prediction(ctypes.sizeof(Prediction))
        self.context.check(
            kiln._library.kiln_tile_predict(
                self.handle,
                ctypes.byref(self.spec(record)),
                ctypes.byref(wanted),
                ctypes.byref(self.shape(record)),
                record["environment"]["num_sms"],
                ctypes.byref(prediction),
            )
        )
        return prediction.time_us

    def replay(self, record, journal, strategy):
        options = Options(ctypes.sizeof(Options), strategy, 0.0, None, journal.encode())
        result = Result(ctypes.sizeof(Result))
        self.context.check(
            kiln._library.kiln_tune(
                self.handle,
                ctypes.byref(self.spec(record)),
                ctypes.byref(self.shape(record)),
                ctypes.byref(options),
                ctypes.byref(result),
            )
        )
        return result


def judge(judged, record, journal):
    times = {
        tile_of(c["tile"]): c["median_ns"] / 1e3
        for c in record["candidates"]
        if c["outcome"] == "timed"
    }
    best = min(times, key=times.get)
    order = sorted(times, key=lambda tile: judged.predicted_us(record, tile))
    climbed = judged.replay(record, journal, b"hillclimb")
    chosen = tuple(getattr(climbed.tile, name) for name in FIELDS)
    return {
        "tiles": len(record["candidates"]),
        "place": order.index(best) + 1,
        "choice": order.index(tile_of(record["tile"])) + 1,
        "gain": times[tile_of(record["default"])] / times[tile_of(record["tile"])],
        "climbed": times[chosen] / times[tile_of(record["tile"])],
        "share": climbed.known / len(record["candidates"]),
    }


def name_of(record):
    p, s = record["problem"], record["shape"]
    return f"{p['arch']} {p['dtype']} {p['head_dim']} {p['mask']} {s['seqlen_q']}"


def main():
    journals = sys.argv[1:]
    if not journals:
        sys.exit(__doc__)
    judged, rows = Judge(), []
    known = [choices(path) for path in journals]
    print(
        f"{'problem':36} {'tiles':>5} {'best is':>7} {'choice':>7} {'gain':>6} {'climbed':>8}"
        f" {'of them':>7}"
    )
    for key, record in known[0].items():
        if record["strategy"] != "exhaustive":
            continue
        row = judge(judged, record, journals[0])
        rows.append(row)
        print(
            f"{name_of(record):36} {row['tiles']:5} {row['place']:6}. {row['choice']:6}."
            f" {row['gain']:6.3f} {row['climbed']:8.3f} {row['share']:7.2f}"
        )
    for key, record in known[0].items():
        tiles = [tile_of(k[key]["tile"]) for k in known if key in k]
        if len(tiles) > 1:
            winner, count = collections.Counter(tiles).most_common(1)[0]
            print(f"{name_of(record)}: {count} of {len(tiles)} tunings chose {winner}")
    if not rows:
        return
    best = sum(row["place"] <= TOP for row in rows)
    choice = sum(row["choice"] <= TOP for row in rows)
    print(
        f"of {len(rows)} problems the model's first {TOP} hold the best of {best}, the choice of"
        f" {choice}"
    )
    near = sum(row["climbed"] <= 1.02 for row in rows)
    print(
        f"hillclimb within 2 % of exhaustive: {near} of {len(rows)}, worst"
        f" {max(row['climbed'] for row in rows):.3f}; measured"
        f" {statistics.mean(row['share'] for row in rows):.2f} of the tiles, at most"
        f" {max(row['share'] for row in rows):.2f}"
    )
    print(f"over the default: mean {statistics.geometric_mean(r['gain'] for r in rows):.3f}")


if __name__ == "__main__":
    main()
