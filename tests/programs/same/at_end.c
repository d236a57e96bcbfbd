// Exit handlers from before and after CUDA began, and destructors of the program and of its library, launch and free GPU memory. Hard: they run after main, in an order
// that nobody chose, some when CUDA is gone, perhaps after our own.
#include "runtime.h"

static float *kept[3];

// `at` may be gone with CUDA: whatever the calls answer.
static void use(const char *who, float *at) {
    char *host = calloc(1, 4 * MIB);
    void *more = NULL;
    axpy(at, kept[2], MIB, 2, NULL);
    int copied = cudaMemcpy(host, at, 4 * MIB, DEVICE_TO_HOST), freed = cudaFree(at), again = cudaFree(at), made = cudaMalloc(&more, 4 * MIB);
    say("%s: copy %d %016" PRIx64 ", free %d %d, malloc %d, last %d\n", who, copied, copied ? 0 : digest(host, 4 * MIB), freed, again, made, cudaGetLastError());
    free(host);
}
static void before_cuda(void) { say("CUDA is gone: malloc %d, free %d\n", cudaMalloc(&(void *){NULL}, 4 * MIB), cudaFree(kept[1])); }
static void after_cuda(void) { use("handler", kept[0]); }
__attribute__((destructor)) static void destructor(void) { say("destructor: free %d\n", cudaFree(kept[1])); }

int main(void) {
    atexit(before_cuda);
    void *library = dlopen("libatend.so", RTLD_NOW);
    NEED(library);
    void (*keep)(void) = (void (*)(void))dlsym(library, "keep");
    for (int i = 0; i < 3; i++) {
        OK(cudaMalloc((void **)&kept[i], 4 * MIB));
        fill(kept[i], MIB, (float)i, NULL);
    }
    keep();
    atexit(after_cuda);
    return 13;
}
