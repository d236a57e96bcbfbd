// Asks for functions at every version from CUDA 3.2 to beyond the newest, by both look-ups, with every kind of flag. Hard: the answer and its status
// must be those of the driver, only the address may be another.
#include "driver.h"

int cuGetProcAddress(const char *, void **, int, uint64_t);

int main(void) {
    NEED(cuInit(0) == 0);
    const char *const names[] = {"cuInit", "cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuLaunchKernelEx", "cuMemcpyDtoH", "cuMemcpyBatchAsync",
                                 "cuGetProcAddress", "cuCtxCreate", "cuMemGetInfo", "cuStreamBeginCapture", "cuMemAllocAsync", "cuNoSuchThing",
                                 "cuMemAlloc_v2", "cuLaunchKernel_ptsz", ""};
    const int versions[] = {0, 2000, 3020, 4000, 6000, 7000, 10000, 10010, 11000, 11030, 11060, 11080, 12000, 12080, 13000, 13020, 13030, 99000};
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
            for (uint64_t flags = 0; flags < 5; flags++) {
                void *at = (void *)1, *again = (void *)1;
                int found = 7, status = cuGetProcAddress_v2(names[n], &at, versions[v], flags, &found);
                int before = cuGetProcAddress(names[n], &again, versions[v], flags);
                say("%s %d %d: %d %d %s; %d %s\n", names[n], versions[v], (int)flags, status, found, at ? at == (void *)1 ? "kept" : "there" : "none", before,
                    again ? again == (void *)1 ? "kept" : "there" : "none");
            }
    // The genuine driver reads a name without asking whether there is one.
    say("no place %d\n", cuGetProcAddress_v2("cuInit", NULL, 13000, 0, NULL));
    return 0;
}
