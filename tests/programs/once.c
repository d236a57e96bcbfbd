// Every launch door reaches the genuine function exactly once, and is one launch, however many doors lie below it.
#include "check.h"
#include "cuda.h"
#define DOOR(call, ...)                                                                                          \
    do {                                                                                                         \
        const char *real[] = {__VA_ARGS__};                                                                      \
        int before[2];                                                                                           \
        uint64_t launches = counter(LAUNCHES);                                                                   \
        for (unsigned i = 0; i < sizeof real / sizeof *real; i++) before[i] = fake_calls(real[i]);               \
        EQUAL(call, 0);                                                                                          \
        for (unsigned i = 0; i < sizeof real / sizeof *real; i++) EQUAL(fake_calls(real[i]), before[i] + 1);     \
        EQUAL(counter(LAUNCHES), launches + 1);                                                                  \
    } while (0)
int main(void) {
    void *p;
    EQUAL(cudaMalloc(&p, 4 << 20), 0);
    ARGS(args, p);
    runtime_config rc = {ONE, ONE, 0, NULL, NULL, 0};
    driver_config dc = {ONE, ONE, 0, NULL, NULL, 0};
    DOOR(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), "cudaLaunchKernel", "cuLaunchKernel");
    DOOR(cudaLaunchKernel_ptsz(KERNEL, ONE, ONE, args, 0, NULL), "cudaLaunchKernel_ptsz", "cuLaunchKernel_ptsz");
    DOOR(__cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), "__cudaLaunchKernel", "cuLaunchKernel");
    DOOR(cudaLaunchKernelExC(&rc, KERNEL, args), "cudaLaunchKernelExC", "cuLaunchKernelEx");
    DOOR(cudaLaunchCooperativeKernel(KERNEL, ONE, ONE, args, 0, NULL), "cudaLaunchCooperativeKernel", "cuLaunchCooperativeKernel");
    DOOR(cudaGraphLaunch((void *)9, NULL), "cudaGraphLaunch", "cuGraphLaunch");
    DOOR(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), "cuLaunchKernel");
    DOOR(cuLaunchKernelEx(&dc, KERNEL, args, NULL), "cuLaunchKernelEx");
    DOOR(cuLaunchCooperativeKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, args), "cuLaunchCooperativeKernel");
    size_t size = 32;
    void *extra[] = {(void *)1, args_v, (void *)2, &size, NULL};
    DOOR(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), "cuLaunchKernel");
    EQUAL(ring()[RING_ISSUED], 10);

    // A launch that the driver refuses is no launch, whichever door says so; the sequence has no hole.
    fake_fail("cuLaunchKernel", 719);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 719);
    fake_fail("cudaLaunchKernel", 98);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 98);
    EQUAL(counter(LAUNCHES), 10);
    EQUAL(counter(LAUNCHES_REFUSED), 2);
    EQUAL(ring()[RING_ISSUED], 10);
    DOOR(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), "cudaLaunchKernel", "cuLaunchKernel");

    // Launches into a graph being captured do not run; the graph's launch does.
    void *graph;
    EQUAL(cudaStreamBeginCapture(NULL, 0), 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(counter(LAUNCHES), 11);
    EQUAL(counter(CAPTURED), 1);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 0);
    EQUAL(cudaStreamEndCapture(NULL, &graph), 401);
    EQUAL(cuStreamBeginCapture(NULL), 0);
    EQUAL(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL), 0);
    EQUAL(counter(CAPTURED), 2);
    EQUAL(cuStreamEndCapture(NULL, &graph), 0);
    EQUAL(counter(LAUNCHES), 11);
    int asked = fake_calls("cuStreamIsCapturing");
    DOOR(cudaGraphLaunch(graph, NULL), "cudaGraphLaunch", "cuGraphLaunch");
    EQUAL(fake_calls("cuStreamIsCapturing"), asked);
    return 0;
}
