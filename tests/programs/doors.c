// Whoever asks for an address gets ours where the genuine function exists, and what it would have got where not.
#include "check.h"
#include "cuda.h"
static void *shim(const char *name) {
    Dl_info info;
    void *at = dlsym(RTLD_DEFAULT, name);
    CHECK(at && dladdr(at, &info) && strstr(info.dli_fname, "libdeepum"));
    return at;
}
int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY), *at;
    CHECK(cuda);
    // By handle and by scope: ours. What we do not touch: the driver's.
    CHECK(dlsym(cuda, "cuLaunchKernel") == shim("cuLaunchKernel"));
    CHECK(dlsym(cuda, "cuInit") == dlvsym(cuda, "cuInit", "FAKE_1"));
    // Next after the program itself comes the shim; who is behind the shim is chain.c's matter.
    CHECK(dlsym(RTLD_NEXT, "cuLaunchKernel") == shim("cuLaunchKernel"));
    // What nobody has stays missing, with a message.
    dlerror();
    CHECK(dlsym(cuda, "cuNoSuchThing") == NULL && dlerror() != NULL);
    CHECK(dlsym(cuda, "cuMemAllocAsync_ptsz") == NULL && dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cublasGemmEx") == NULL && dlerror() != NULL);
    void *program = dlopen(NULL, RTLD_LAZY);
    CHECK(dlsym(program, "cublasGemmEx") == NULL && dlerror() != NULL);
    CHECK(dlsym(program, "main") == (void *)main || dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "strlen") != NULL);
    // A library's own function of a name that we know is the library's, whether CUDA has one or not.
    void *own = dlopen("libown.so", RTLD_LAZY | RTLD_LOCAL);
    int (*gemm)(void) = dlsym(own, "cublasGemmEx"), (*launch)(void) = dlsym(own, "cuLaunchKernel");
    CHECK(dlerror() == NULL);
    EQUAL(gemm(), 71);
    EQUAL(launch(), 72);

    // cuGetProcAddress answers for itself, so that whoever uses the answer from then on is still seen.
    int (*get)(const char *, void **, int, uint64_t, int *) = dlsym(cuda, "cuGetProcAddress_v2");
    CHECK((void *)get == shim("cuGetProcAddress_v2"));
    EQUAL(get("cuGetProcAddress", &at, 13020, 0, NULL), 0);
    CHECK(at == (void *)get);
    EQUAL(get("cuGetProcAddress", &at, 11030, 0, NULL), 0);
    CHECK(at == shim("cuGetProcAddress"));
    EQUAL(get("cuLaunchKernel", &at, 13020, 0, NULL), 0);
    CHECK(at == shim("cuLaunchKernel"));
    EQUAL(get("cuLaunchKernel", &at, 13020, 2, NULL), 0);
    CHECK(at == shim("cuLaunchKernel_ptsz"));
    EQUAL(get("cuMemAlloc", &at, 3020, 0, NULL), 0);
    CHECK(at == shim("cuMemAlloc_v2"));
    EQUAL(get("cuInit", &at, 13020, 0, NULL), 0);
    CHECK(at == dlvsym(cuda, "cuInit", "FAKE_1"));
    EQUAL(get("cuNoSuchThing", &at, 13020, 0, NULL), 500);
    EQUAL(cudaGetDriverEntryPoint("cuMemFree", &at, 0, NULL), 0);
    CHECK(at == shim("cuMemFree_v2"));
    EQUAL(cudaGetDriverEntryPointByVersion("cuGraphLaunch", &at, 12000, 0, NULL), 0);
    CHECK(at == shim("cuGraphLaunch"));
    return 0;
}
