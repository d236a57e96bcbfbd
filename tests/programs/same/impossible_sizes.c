// Asks for sizes that nobody has, and for products that overflow. Hard: rounding up to whole blocks may itself overflow, and our accounts of memory must not
// be changed by what failed.
#include "runtime.h"

#define ASK(call)                                                            \
    do {                                                                     \
        out = (void *)7;                                                     \
        int status = (call);                                                 \
        say("%s: %d %d; place %s\n", #call, status, cudaGetLastError(), out == (void *)7 ? "kept" : out ? "written" : "null"); \
    } while (0)

int main(void) {
    void *out;
    size_t pitch = 0;
    pitched box;
    for (int round = 0; round < 2; round++) {
        ASK(cudaMalloc(&out, (size_t)-1));
        ASK(cudaMalloc(&out, (size_t)-4096));
        ASK(cudaMalloc(&out, (size_t)-2 * MIB + 1));
        ASK(cudaMalloc(&out, (size_t)1 << 63));
        ASK(cudaMalloc(&out, (size_t)1 << 62));
        ASK(cudaMalloc(&out, (size_t)1 << 50));
        ASK(cudaMallocManaged(&out, (size_t)-1, 1));
        ASK(cudaMallocManaged(&out, (size_t)1 << 62, 1));
        ASK(cudaMallocPitch(&out, &pitch, (size_t)-1, 1));
        ASK(cudaMallocPitch(&out, &pitch, (size_t)1 << 32, (size_t)1 << 32));
        ASK(cudaMallocPitch(&out, &pitch, (size_t)1 << 40, (size_t)1 << 20));
        ASK(cudaMalloc3D(&box, (extent3){(size_t)1 << 20, (size_t)1 << 22, (size_t)1 << 22}));
        ASK(cudaMalloc3D(&box, (extent3){(size_t)1 << 20, (size_t)1 << 30, 64}));
        ASK(cudaHostAlloc(&out, (size_t)1 << 62, 0));
        say("%016" PRIx64 "\n", train((float)round));
    }
    return 0;
}
