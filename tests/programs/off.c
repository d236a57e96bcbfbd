// DEEPUM=0, or a GPU that cannot fault: everything goes straight on, and nothing of ours is there.
#include "check.h"
#include "cuda.h"
int main(int argc, char **argv) {
    void *p, *at;
    size_t free_bytes, total;
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    EQUAL(fake_kind(p), 'd');
    EQUAL(fake_calls("cuMemAlloc_v2"), 1);
    ARGS(args, p);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(fake_calls("cuLaunchKernel"), 1);
    EQUAL(cudaMemGetInfo(&free_bytes, &total), 0);
    EQUAL(total, 1024 << 20);
    EQUAL(counter(LAUNCHES), 0);
    if (argc > 1 && !strcmp(argv[1], "never")) {
        CHECK(ring() == NULL);
        void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
        EQUAL(cuGetProcAddress_v2("cuLaunchKernel", &at, 13020, 0, NULL), 0);
        CHECK(at == dlvsym(cuda, "cuLaunchKernel", "FAKE_1"));
    }
    EQUAL(cudaFree(p), 0);
    return 0;
}
