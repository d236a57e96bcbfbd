// Wrong arguments and wrong order of calls to the driver: before cuInit, without a context, with handles of nothing. Hard: calls of ours may initialise
// what the program did not, or give it a context.
#include "driver.h"

#define GIVES(call) say("%s: %d\n", #call, (call))

int main(void) {
    device_ptr p = 0, base;
    size_t size;
    void *context, *module, *function, *host, *stream;
    int n;
    GIVES(cuMemAlloc_v2(&p, 4 * MIB));
    GIVES(cuDeviceGetCount(&n));
    GIVES(cuCtxGetCurrent(&context));
    GIVES(cuMemAllocManaged(&p, 4 * MIB, 1));
    GIVES(cuModuleLoadData(&module, FILL_TEXT));
    GIVES(cuInit(7));
    GIVES(cuInit(0));
    GIVES(cuMemAlloc_v2(&p, 4 * MIB));
    GIVES(cuMemAllocPitch_v2(&p, &size, 4096, 1024, 4));
    GIVES(cuMemFree_v2(64 * MIB));
    GIVES(cuMemsetD8_v2(64 * MIB, 1, 64));
    GIVES(cuCtxGetDevice(&n));
    GIVES(cuCtxSynchronize());
    GIVES(cuStreamCreate(&stream, 0));
    GIVES(cuCtxPopCurrent_v2(&context));
    GIVES(cuDeviceGet(&n, 99));
    GIVES(cuDevicePrimaryCtxRetain(&context, 99));
    GIVES(cuDevicePrimaryCtxRelease_v2(0));
    GIVES(cuDevicePrimaryCtxRetain(&context, 0));
    GIVES(cuMemAlloc_v2(&p, 4 * MIB));
    GIVES(cuCtxSetCurrent(context));
    GIVES(cuMemAlloc_v2(NULL, 4096));
    GIVES(cuMemAlloc_v2(&p, 0));
    GIVES(cuMemAllocManaged(&p, 4 * MIB, 9));
    GIVES(cuMemAllocPitch_v2(&p, &size, 4096, 2, 3));
    GIVES(cuMemAllocPitch_v2(&p, NULL, 4096, 2, 4));
    GIVES(cuMemAlloc_v2(&p, 4 * MIB));
    GIVES(cuMemFree_v2(p + 4));
    GIVES(cuMemFree_v2(0));
    GIVES(cuMemsetD32_v2(p + 1, 1, 4));
    GIVES(cuMemsetD8_v2(p, 1, 4 * MIB + 1));
    GIVES(cuMemGetAddressRange_v2(&base, &size, p + 4 * MIB));
    GIVES(cuMemHostAlloc(&host, 64, 0xff00));
    GIVES(cuMemFreeHost(&host));
    GIVES(cuModuleLoadData(&module, "nothing"));
    GIVES(cuModuleLoadData(&module, FILL_TEXT));
    GIVES(cuModuleGetFunction(&function, module, "no_such_kernel"));
    GIVES(cuModuleGetFunction(&function, module, "deepum_test_fill"));
    GIVES(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    void *params[3] = {&p, &size, &size};
    GIVES(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    GIVES(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, NULL, params, NULL));
    GIVES(cuLaunchCooperativeKernel(function, 1 << 30, 1, 1, 1024, 1, 1, 0, NULL, params));
    GIVES(cuEventQuery(NULL));
    GIVES(cuMemFree_v2(p));
    GIVES(cuMemFree_v2(p));
    GIVES(cuCtxSynchronize());
    return 0;
}
