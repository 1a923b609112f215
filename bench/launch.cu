/* What the host pays for a launch: kiln_plan_run of a plan that stands, beside an empty kernel.
 *   nvcc -O2 -Iinclude bench/launch.cu -Lbuild/lib -lkiln -o build/launch
 *   LD_LIBRARY_PATH=build/lib build/launch [ARCH...]       (default: sm_90a sm_90)
 * Nanoseconds of one call by the clock of the host: median, and the tenth and ninetieth of a
 * hundred. The queue of the stream is empty or nearly so: what is launched is small, and every 32
 * launches the host waits. The empty kernel is launched by the driver's cuLaunchKernelEx, as Kiln
 * launches its own. */
#include <cuda.h>
#include <cuda_runtime.h>
#include <kiln/kiln.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

__global__ void empty() {}

static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "launch: %s\n", what);
  exit(1);
}

static double now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

template <class Call> static void measure(const char *name, Call call) {
  const int rounds = 400, each = 32;
  std::vector<double> times;
  for (int r = 0; r < rounds; r++) {
    for (int i = 0; i < each; i++) {
      const double start = now_ns();
      call();
      times.push_back(now_ns() - start);
    }
    need(cudaDeviceSynchronize() == cudaSuccess, "a launch failed");
  }
  times.erase(times.begin(), times.begin() + 20 * each);
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  printf("%-28s %7.0f ns   10 %% %7.0f   90 %% %7.0f\n", name, times[n / 2], times[n / 10],
         times[n * 9 / 10]);
}

static void measure_kiln(const char *arch, cudaStream_t stream) {
  const int seqlen = 128, heads = 2, head_dim = 128;
  kiln_context *ctx = NULL;
  kiln_plan *plan = NULL;
  void *tensors[4];
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  char name[64];
  need(kiln_context_create(0, NULL, &ctx) == KILN_OK, "there is no context");
  const char *fields[][2] = {{"arch", arch}, {"dtype", "bf16"}, {"head_dim", "128"}};
  for (auto &f : fields)
    need(kiln_attn_spec_set(ctx, &spec, f[0], f[1]) == KILN_OK, kiln_last_error(ctx));
  for (void *&t : tensors)
    need(cudaMalloc(&t, (size_t)seqlen * heads * head_dim * 2) == cudaSuccess, "no memory");
  args.q = tensors[0], args.k = tensors[1], args.v = tensors[2], args.o = tensors[3];
  args.batch = 1, args.seqlen_q = args.seqlen_k = seqlen;
  args.num_heads = args.num_heads_k = heads;
  spec.head_dim_v = head_dim;
  kiln_attn_args_pack(&args, &spec);
  need(kiln_plan_create(ctx, &spec, NULL, &args, &plan) == KILN_OK, kiln_last_error(ctx));
  snprintf(name, sizeof name, "kiln_plan_run, %s", arch);
  measure(name, [&] {
    need(kiln_plan_run(plan, &args, (CUstream_st *)stream) == KILN_OK, kiln_last_error(ctx));
  });
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  for (void *t : tensors) cudaFree(t);
}

int main(int count, char **names) {
  cudaStream_t stream;
  need(cudaStreamCreate(&stream) == cudaSuccess, "there is no GPU");
  cudaFunction_t function;
  void *entry = NULL;
  need(cudaGetFuncBySymbol(&function, (const void *)empty) == cudaSuccess, "no empty kernel");
  need(cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &entry, 12000, cudaEnableDefault,
                                        NULL) == cudaSuccess,
       "no cuLaunchKernelEx");
  auto launch = (CUresult(*)(const CUlaunchConfig *, CUfunction, void **, void **))entry;
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32, config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  measure("an empty kernel", [&] {
    need(launch(&config, (CUfunction)function, NULL, NULL) == CUDA_SUCCESS, "a launch failed");
  });
  for (int i = 1; i < count; i++) measure_kiln(names[i], stream);
  if (count == 1) measure_kiln("sm_90a", stream), measure_kiln("sm_90", stream);
  return 0;
}
