// The CUDA functions that the programs here call, as a program compiled against CUDA has them.
#pragma once
#include "fake/fake.h"
#define WEAK __attribute__((weak))
#define RT void *f, dim3 g, dim3 b, void **args, size_t shared, void *stream
#define DK void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **params
int cudaLaunchKernel(RT), cudaLaunchKernel_ptsz(RT), __cudaLaunchKernel(RT), cudaLaunchCooperativeKernel(RT);
int cudaLaunchKernelExC(const runtime_config *, void *f, void **args);
int cudaGraphLaunch(void *, void *), cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **);
int cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocPitch(void **, size_t *, size_t, size_t), cudaMalloc3D(pitched *, extent3), cudaMallocAsync(void **, size_t, void *);
int cudaMemGetInfo(size_t *, size_t *), cudaIpcGetMemHandle(void *, void *), cudaGetDeviceProperties(char *, int);
int cudaGetDriverEntryPoint(const char *, void **, uint64_t, int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, uint64_t, int *);
int cudaGetLastError(void), cudaDeviceReset(void), cudaMemsetAsync(void *, int, size_t, void *);
int cuLaunchKernel(DK, void **extra), cuLaunchKernelEx(const driver_config *, void *, void **, void **);
int cuStreamBeginCapture(void *), cuStreamEndCapture(void *, void **), cudaStreamDestroy(void *), cuCtxDestroy_v2(void *);
int cuCtxCreate_v2(void **, unsigned, int), cuCtxCreate_v3(void **, void *, int, unsigned, int), cuCtxCreate_v4(void **, void *, unsigned, int), cuCtxFromGreenCtx(void **, void *);
int cuLaunchCooperativeKernel(DK), cuGraphLaunch(void *, void *), cuModuleUnload(void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);
int cuMemCreate(uint64_t *, size_t, void *, uint64_t), cuMemGetInfo_v2(size_t *, size_t *), cuDeviceTotalMem_v2(size_t *, int);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
static const dim3 ONE = {1, 1, 1};
#define KERNEL ((void *)0x51)
// Four arguments of 8 bytes, as every kernel of the fake has.
#define ARGS(name, p)                                                 \
    uint64_t name##_v[4] = {(uint64_t)(p), 1, 2, 3};                  \
    void *name[4] = {&name##_v[0], &name##_v[1], &name##_v[2], &name##_v[3]}
