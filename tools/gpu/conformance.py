"""conformance.py FOLDER OUT: runs the cases of tests/conformance on the GPU at hand and writes
their answers: OUT/h200.txt and .bin, what is committed, and OUT/full.txt and .bin, with every byte.

FOLDER comes from tools/gpu/conformance.sh. Needs Python 3 and the CUDA driver alone. A case that
fails or hangs ends its process; the next one goes on behind it. Ends with `N passed, N failed`.
"""

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys

SECONDS = 10  # that one case may take; SIGALRM ends its process
KEPT = 512  # bytes of an answer that is compared by its digest,
WHOLE = 4096  # or all of it when it is no longer than this
SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
DTYPES = {"fp16": 6, "bf16": 9, "e4m3": 0, "fp32": 7}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTION_128 = 2


def read_manifest(folder):
    cases = []
    for line in open(os.path.join(folder, "manifest")):
        words = line.split()
        if words[0] == "case":
            numbers = [int(x) for x in words[5:]]
            cases.append({"name": words[1], "id": words[2], "entry": words[4], "maps": [],
                          "words": [], "checks": [], "threads": numbers[0],
                          "grid": numbers[1:3], "cluster": numbers[3], "shared": numbers[4],
                          "in": numbers[5], "out": numbers[6]})
        elif words[0].startswith("map"):
            rank = int(words[0][3:] or 4)
            cases[-1]["maps"].append((words[1], rank, [int(x) for x in words[2:-1]], words[-1]))
        elif words[0] == "word":
            cases[-1]["words"].append((words[1], int(words[2])))
        elif words[0] == "check":
            cases[-1]["checks"].append(words[1])
    return cases


# ---- one case on the device ----


class Driver:
    """The driver with one context; every call that fails raises."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.about = f"{name.value.decode()}, driver API {version.value}"

    def call(self, name, *arguments):
        result = getattr(self.lib, name)(*arguments)
        if result:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def alloc(self, count):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        return address.value

    def tensor_map(self, address, rank, numbers, dtype):
        """128 bytes on a multiple of 64, and what keeps them alive."""
        dims, strides = numbers[1:1 + rank], numbers[1 + rank:2 * rank]
        box = numbers[2 * rank:3 * rank]
        raw = ctypes.create_string_buffer(192)
        at = (ctypes.addressof(raw) + 63) & ~63
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(at), DTYPES[dtype], rank,
                  ctypes.c_void_p(address + numbers[0]), (ctypes.c_uint64 * 5)(*dims),
                  (ctypes.c_uint64 * 4)(*strides), (ctypes.c_uint32 * 5)(*box),
                  (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1), 0, SWIZZLES[numbers[-1]],
                  L2_PROMOTION_128, 0)
        return at, raw

    def function(self, folder, case):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        image = open(os.path.join(folder, case["name"] + ".cubin"), "rb").read()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, case["entry"].encode())
        self.call("cuFuncSetAttribute", function, SHARED_BYTES, case["shared"])
        return function


def answer(driver, folder, case):
    function = driver.function(folder, case)
    space = {"in": driver.alloc(case["in"]), "out": driver.alloc(case["out"]), "value": 0}
    data = open(os.path.join(folder, case["name"] + ".in"), "rb").read()
    driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(space["in"]), data, ctypes.c_size_t(len(data)))
    driver.call("cuMemsetD8_v2", ctypes.c_uint64(space["out"]), ctypes.c_ubyte(255),
                ctypes.c_size_t(case["out"]))
    maps = [driver.tensor_map(space[s], rank, numbers, dtype)
            for s, rank, numbers, dtype in case["maps"]]
    words = [(space[s] + value) % 2**64 for s, value in case["words"]]
    args = ctypes.create_string_buffer(struct.pack(f"<{len(words)}Q", *words))
    addresses = [at for at, _ in maps] + [ctypes.addressof(args)]
    params = (ctypes.c_void_p * len(addresses))(*addresses)
    driver.call("cuLaunchKernel", function, *case["grid"], 1, case["threads"], 1, 1, case["shared"],
                None, params, None)
    driver.call("cuCtxSynchronize")
    out = ctypes.create_string_buffer(case["out"])
    driver.call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(space["out"]), ctypes.c_size_t(case["out"]))
    return out.raw


# ---- a process for as many cases as go well ----


def child(folder, out, first):
    """Answers of the cases from `first` on, a file each; a line on stdout before and after each."""
    driver = Driver()
    print(json.dumps({"about": driver.about}), flush=True)
    for index, case in enumerate(read_manifest(folder)):
        if index < first:
            continue
        print(json.dumps({"begin": index}), flush=True)
        signal.alarm(SECONDS)
        bytes_out = answer(driver, folder, case)
        if answer(driver, folder, case) != bytes_out:
            raise RuntimeError("two runs give two answers")
        with open(os.path.join(out, case["name"] + ".out"), "wb") as file:
            file.write(bytes_out)
    print(json.dumps({"begin": -1}), flush=True)


def run_child(folder, out, first):
    """The case at which the child stopped, -1 when it did all, why, and what the device is."""
    command = [sys.executable, os.path.abspath(__file__), folder, out, str(first)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    last, about = first, ""
    for line in process.stdout.splitlines():
        said = json.loads(line)
        last, about = said.get("begin", last), said.get("about", about)
    lines = process.stderr.strip().splitlines()
    return last, lines[-1] if lines else f"ended with {process.returncode}", about


def run_all(folder, out, cases):
    first, failures, about = 0, {}, ""
    while first < len(cases):
        last, why, about = run_child(folder, out, first)
        if last < 0:
            break
        failures[cases[last]["name"]] = why
        print(f"{cases[last]['name']}: {why}", flush=True)
        first = last + 1
    return failures, about


# ---- the record ----


def digest(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def write_record(out, name, about, answers, is_full):
    with open(os.path.join(out, name + ".bin"), "wb") as binary, \
         open(os.path.join(out, name + ".txt"), "w") as text:
        text.write(f"# Answers of {about} to tests/conformance; by tools/gpu/conformance.py.\n"
                   "# name, id of the case, digest of the answer, its bytes; offset in the .bin "
                   "file and bytes kept\n")
        for case, data, hashed in answers:
            is_short = case["checks"][0] == "bits" and not is_full and len(data) > WHOLE
            kept = data[:KEPT] if is_short else data
            text.write(f"{case['name']} {case['id']} {hashed} {len(data)} {binary.tell()} "
                       f"{len(kept)}\n")
            binary.write(kept)


def main(folder, out):
    os.makedirs(out, exist_ok=True)
    cases = read_manifest(folder)
    failures, about = run_all(folder, out, cases)
    answers = []
    for case in cases:
        path = os.path.join(out, case["name"] + ".out")
        if case["name"] in failures or not os.path.exists(path):
            continue
        data = open(path, "rb").read()
        os.remove(path)
        answers.append((case, data, digest(data)))
    write_record(out, "h200", about, answers, False)
    write_record(out, "full", about, answers, True)
    with open(os.path.join(out, "failures.json"), "w") as file:
        json.dump(failures, file, indent=1)
    print(about)
    print(f"{len(answers)} passed, {len(cases) - len(answers)} failed")
    return len(answers) != len(cases)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2]))
