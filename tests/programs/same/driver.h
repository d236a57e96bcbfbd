// For programs of the driver: its functions, and the kernel `deepum_test_fill` as text that it compiles.
#pragma once
#include "common.h"

typedef uint64_t device_ptr;
int cuInit(unsigned), cuDeviceGet(int *, int), cuDeviceGetCount(int *), cuDevicePrimaryCtxRetain(void **, int), cuDevicePrimaryCtxRelease_v2(int);
int cuCtxSetCurrent(void *), cuCtxGetCurrent(void **), cuCtxPushCurrent_v2(void *), cuCtxPopCurrent_v2(void **), cuCtxGetDevice(int *), cuCtxSynchronize(void);
int cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *), cuDevicePrimaryCtxGetState(int, unsigned *, int *);
int cuMemAlloc_v2(device_ptr *, size_t), cuMemFree_v2(device_ptr), cuMemAllocManaged(device_ptr *, size_t, unsigned), cuMemAllocPitch_v2(device_ptr *, size_t *, size_t, size_t, unsigned);
int cuMemcpyDtoH_v2(void *, device_ptr, size_t), cuMemcpyHtoD_v2(device_ptr, const void *, size_t), cuMemsetD8_v2(device_ptr, unsigned char, size_t), cuMemsetD32_v2(device_ptr, unsigned, size_t);
int cuMemGetAddressRange_v2(device_ptr *, size_t *, device_ptr), cuPointerGetAttribute(void *, int, device_ptr), cuStreamCreate(void **, unsigned), cuStreamDestroy_v2(void *);
int cuStreamSynchronize(void *), cuEventCreate(void **, unsigned), cuEventDestroy_v2(void *), cuEventRecord(void *, void *), cuEventQuery(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *), cuModuleUnload(void *), cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchCooperativeKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
int cuMemHostAlloc(void **, size_t, unsigned), cuMemFreeHost(void *), cuDeviceGetAttribute(int *, int, int), cuIpcGetMemHandle(void *, device_ptr);

#define FILL_TEXT                                                                                                                 \
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry deepum_test_fill(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n" \
    ".reg .pred %p;\n.reg .u32 %w<4>;\n.reg .u64 %i, %n, %step, %x;\n.reg .f32 %a, %b;\n"                                          \
    "mov.u32 %w0, %ctaid.x;\nmov.u32 %w1, %ntid.x;\nmov.u32 %w2, %tid.x;\nmov.u32 %w3, %nctaid.x;\n"                              \
    "mul.wide.u32 %i, %w0, %w1;\ncvt.u64.u32 %x, %w2;\nadd.u64 %i, %i, %x;\nmul.wide.u32 %step, %w3, %w1;\n"                      \
    "ld.param.u64 %x, [c];\ncvt.u32.u64 %w0, %x;\nmov.b32 %a, %w0;\nld.param.u64 %n, [b];\n"                                      \
    "NEXT:\nsetp.ge.u64 %p, %i, %n;\n@%p bra DONE;\ncvt.rn.f32.u64 %b, %i;\nadd.rn.f32 %b, %a, %b;\nld.param.u64 %x, [a];\n"       \
    "shl.b64 %n, %i, 2;\nadd.u64 %x, %x, %n;\nst.f32 [%x], %b;\nld.param.u64 %n, [b];\nadd.u64 %i, %i, %step;\nbra NEXT;\nDONE:\nret;\n}\n"
#define OK(call) NEED((call) == 0)
