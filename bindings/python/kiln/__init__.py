"""Kiln from Python: ctypes over the C interface of libkiln, nothing else.

Tensors are anything with `data_ptr()`, `shape`, `stride()` and `dtype` (PyTorch), of shape (batch,
seqlen, num_heads, head_dim), on the device of the context. Streams are integers, such as
torch.cuda.current_stream().cuda_stream.

    context = kiln.Context(0)
    plan = context.plan(q, k, v, o, causal=True)
    plan.run(q, k, v, o, lse=lse, stream=stream)

Gradients, from q, k, v, o, lse and dout, the gradient of o, into dq, dk and dv:

    gradients = (dout, dq, dk, dv)
    plan = context.plan(q, k, v, o, causal=True, backward=True, gradients=gradients)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    plan.run(q, k, v, o, lse=lse, workspace=workspace, gradients=gradients, stream=stream)

workspace_bytes is for the sizes that the plan was made with.

Errors are kiln.Error, with the library's status number and sentence. The library is searched for in
KILN_LIBRARY, beside this file, and by the loader.
"""

import ctypes
import os

__all__ = ["Context", "Error", "Plan"]

_SCALE_DEFAULT = -1.0
_DTYPES = {"float16": 0, "bfloat16": 1}
_ALGORITHMS = {"flash": 0, "standard": 1}


class Error(RuntimeError):
    """A refusal or a failure. status: the number of kiln_status."""

    def __init__(self, status, sentence):
        super().__init__(sentence)
        self.status = status


class _Spec(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("arch", ctypes.c_char * 16),
        ("pass_", ctypes.c_int),
        ("algorithm", ctypes.c_int),
        ("dtype", ctypes.c_int),
        ("head_dim", ctypes.c_int32),
        ("head_dim_v", ctypes.c_int32),
        ("mask", ctypes.c_int),
        ("deterministic", ctypes.c_int32),
    ]


class _Tile(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("block_m", ctypes.c_int32),
        ("block_n", ctypes.c_int32),
        ("num_stages", ctypes.c_int32),
        ("num_warps", ctypes.c_int32),
    ]


class _Stride(ctypes.Structure):
    _fields_ = [("batch", ctypes.c_int64), ("row", ctypes.c_int64), ("head", ctypes.c_int64)]


class _Args(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("q", ctypes.c_void_p),
        ("k", ctypes.c_void_p),
        ("v", ctypes.c_void_p),
        ("o", ctypes.c_void_p),
        ("lse", ctypes.c_void_p),
        ("batch", ctypes.c_int32),
        ("seqlen_q", ctypes.c_int32),
        ("seqlen_k", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_heads_k", ctypes.c_int32),
        ("q_stride", _Stride),
        ("k_stride", _Stride),
        ("v_stride", _Stride),
        ("o_stride", _Stride),
        ("softmax_scale", ctypes.c_float),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("dout", ctypes.c_void_p),
        ("dq", ctypes.c_void_p),
        ("dk", ctypes.c_void_p),
        ("dv", ctypes.c_void_p),
        ("do_stride", _Stride),
        ("dq_stride", _Stride),
        ("dk_stride", _Stride),
        ("dv_stride", _Stride),
    ]


class _PlanInfo(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("spec", _Spec),
        ("tile", _Tile),
        ("kernel_id", ctypes.c_char_p),
        ("source_id", ctypes.c_char_p),
        ("record", ctypes.c_char_p),
        ("why", ctypes.c_char_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("from_cache", ctypes.c_int32),
    ]


def _load():
    names = [
        os.environ.get("KILN_LIBRARY"),
        os.path.join(os.path.dirname(__file__), "libkiln.so"),
        "libkiln.so.0",
    ]
    for name in filter(None, names):
        try:
            library = ctypes.CDLL(name)
        except OSError as reason:
            last = reason
            continue
        library.kiln_last_error.restype = ctypes.c_char_p
        return library
    raise ImportError(f"libkiln is not found: set KILN_LIBRARY to its path ({last})")


_library = _load()


def _stride(tensor):
    batch, row, head, _ = tensor.stride()
    return _Stride(batch, row, head)


def _dtype(tensor):
    return str(tensor.dtype).split(".")[-1]


def _check(tensors, dtype):
    """tensors: name, tensor, shape. A kernel goes by address and strides alone, so a tensor of
    another shape or type would be read and written as if it were the one that is wanted."""
    for name, x, shape in tensors:
        if _dtype(x) != dtype or tuple(x.shape) != tuple(shape):
            found = f"{_dtype(x)} {tuple(x.shape)}"
            raise Error(1, f"{name} is {found}: it must be {dtype} {tuple(shape)}")
        if x.shape[-1] > 1 and x.stride()[-1] != 1:
            raise Error(1, f"the last dimension of {name} must be contiguous")


def _check_shapes(q, k, v, o, lse, gradients):
    if any(len(x.shape) != 4 for x in (q, k, v)):
        raise Error(1, "q, k and v must have 4 dimensions: batch, seqlen, num_heads, head_dim")
    if len(gradients) not in (0, 4):
        raise Error(1, f"gradients has {len(gradients)} tensors: it must be dout, dq, dk, dv")
    batch, seqlen_q, heads, dim = q.shape
    of_k, of_v = (batch, *k.shape[1:3], dim), (batch, *k.shape[1:3], v.shape[3])
    of_o = (batch, seqlen_q, heads, v.shape[3])
    tensors = [("q", q, q.shape), ("k", k, of_k), ("v", v, of_v), ("o", o, of_o)]
    _check(
        tensors + list(zip(("dout", "dq", "dk", "dv"), gradients, (of_o, q.shape, of_k, of_v))),
        _dtype(q),
    )
    if lse is None:
        return
    _check([("lse", lse, (batch, heads, seqlen_q))], "float32")
    packed = (heads * seqlen_q, seqlen_q, 1)
    if any(n > 1 and s != t for n, s, t in zip(lse.shape, lse.stride(), packed)):
        raise Error(1, "lse must be contiguous")


def _args(q, k, v, o, lse=None, softmax_scale=None, workspace=None, gradients=()):
    """gradients: dout, dq, dk, dv of a backward pass"""
    _check_shapes(q, k, v, o, lse, gradients)
    return _Args(
        ctypes.sizeof(_Args),
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        o.data_ptr(),
        None if lse is None else lse.data_ptr(),
        q.shape[0],
        q.shape[1],
        k.shape[1],
        q.shape[2],
        k.shape[2],
        _stride(q),
        _stride(k),
        _stride(v),
        _stride(o),
        _SCALE_DEFAULT if softmax_scale is None else softmax_scale,
        None if workspace is None else workspace.data_ptr(),
        0 if workspace is None else workspace.numel() * workspace.element_size(),
        *(x.data_ptr() for x in gradients),
        *([] if not gradients else map(_stride, gradients)),
    )


class Context:
    """One device: a CUDA ordinal. Contexts and plans are freed with their last reference."""

    def __init__(self, device=0):
        self._handle = ctypes.c_void_p()
        status = _library.kiln_context_create(device, None, ctypes.byref(self._handle))
        if status:
            raise Error(status, f"no context for device {device} (status {status})")

    def __del__(self):
        if self._handle:
            _library.kiln_context_destroy(self._handle)

    def check(self, status):
        if status:
            raise Error(status, _library.kiln_last_error(self._handle).decode())

    def plan(
        self,
        q,
        k,
        v,
        o,
        causal=False,
        arch="",
        algorithm="flash",
        backward=False,
        deterministic=False,
        gradients=(),
    ):
        """Chooses, compiles and loads a kernel for tensors like these.

        algorithm: "flash" or "standard". backward: the gradients' kernels, for dout, dq, dk, dv
        like `gradients`; deterministic: dq has the same bits in every run, too.
        """
        dtype = _DTYPES.get(_dtype(q))
        if dtype is None:
            raise Error(1, f"dtype {q.dtype} is not float16 or bfloat16")
        if algorithm not in _ALGORITHMS:
            raise Error(1, f"algorithm {algorithm!r} is not 'flash' or 'standard'")
        if len(arch) > 15:
            raise Error(1, f"arch {arch!r} is none that Kiln knows")
        shape = _args(q, k, v, o, gradients=gradients)
        if backward and not gradients:
            raise Error(1, "backward needs gradients: dout, dq, dk, dv")
        spec = _Spec(
            ctypes.sizeof(_Spec),
            arch.encode(),
            int(backward),
            _ALGORITHMS[algorithm],
            dtype,
            q.shape[3],
            v.shape[3],
            int(causal),
            int(deterministic),
        )
        return Plan(self, spec, shape)


class Plan:
    """A kernel that is ready to run on any sizes of its spec."""

    def __init__(self, context, spec, shape):
        self._context = context
        self._handle = ctypes.c_void_p()
        context.check(
            _library.kiln_plan_create(
                context._handle,
                ctypes.byref(spec),
                None,
                ctypes.byref(shape),
                ctypes.byref(self._handle),
            )
        )
        info = _PlanInfo(ctypes.sizeof(_PlanInfo))
        _library.kiln_plan_get_info(self._handle, ctypes.byref(info))
        self.kernel_id, self.why = info.kernel_id.decode(), info.why.decode()
        self.workspace_bytes = info.workspace_bytes
        self.tile = {name: getattr(info.tile, name) for name, _ in _Tile._fields_[1:]}
        self._spec = info.spec

    def __del__(self):
        if self._handle:
            _library.kiln_plan_destroy(self._handle)

    def _check_spec(self, q, v, gradients):
        spec = self._spec
        found = (_DTYPES.get(_dtype(q)), q.shape[3], v.shape[3])
        if found != (spec.dtype, spec.head_dim, spec.head_dim_v):
            dtype = next(name for name, number in _DTYPES.items() if number == spec.dtype)
            dims = f"{spec.head_dim} and {spec.head_dim_v}"
            raise Error(1, f"the plan is for {dtype}, head_dim and head_dim_v {dims}: make another")
        if spec.pass_ == 0 and gradients:
            raise Error(1, "the plan is for the forward pass: make one with backward=True")
        if spec.pass_ == 1 and not gradients:
            raise Error(
                1, "the plan is for the backward pass: it needs gradients: dout, dq, dk, dv"
            )

    def bind(self, q, k, v, o, lse=None, softmax_scale=None, workspace=None, gradients=()):
        """A function of a stream that enqueues the kernel on these tensors; it keeps them alive.

        gradients: dout, dq, dk, dv, for a plan of the backward pass.
        """
        args = _args(q, k, v, o, lse, softmax_scale, workspace, gradients)
        self._check_spec(q, v, gradients)
        handle, pointer, run = self._handle, ctypes.byref(args), _library.kiln_plan_run

        def launch(stream=0, keep=(self, args, q, k, v, o, lse, workspace, gradients)):
            status = run(handle, pointer, ctypes.c_void_p(stream))
            if status:
                self._context.check(status)

        return launch

    def run(self, q, k, v, o, lse=None, softmax_scale=None, workspace=None, gradients=(), stream=0):
        self.bind(q, k, v, o, lse, softmax_scale, workspace, gradients)(stream)
