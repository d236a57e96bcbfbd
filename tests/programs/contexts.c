// A context beside the device's own has a default stream that nobody can tell from the other's, so operations are followed no more: whether
// it is made before or after the page.
#include "check.h"
#include "cuda.h"
static void launch(void *memory) {
    ARGS(args, memory);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
}
int main(int argc, char **argv) {
    void *memory, *context;
    EQUAL(cudaMalloc(&memory, 4 << 20), 0);
    const char *when = argc > 1 ? argv[1] : "";
    int before = !strcmp(when, "before");
    if (before) EQUAL(cuCtxCreate_v2(&context, 0, 0), 0);
    launch(memory);
    EQUAL(page()[PAGE_BLIND], before);
    if (!strcmp(when, "affine")) EQUAL(cuCtxCreate_v3(&context, NULL, 0, 0, 0), 0);
    if (!strcmp(when, "green")) EQUAL(cuCtxFromGreenCtx(&context, NULL), 0);
    if (!strcmp(when, "parameters")) EQUAL(cuCtxCreate_v4(&context, NULL, 0, 0), 0);
    launch(memory);
    EQUAL(page()[PAGE_BLIND], *when != 0);
    return 0;
}
