// Errno, rounding, floating-point exceptions and their traps, and the vector state are the program's, over every kind of call. Hard: a library that divides or
// opens a file in between must not be seen by it.
#include "runtime.h"
#include <fenv.h>
#include <xmmintrin.h>

static const char *last = "";
static unsigned first;

static void found(const char *call) {
    int number = errno;
    unsigned now = _mm_getcsr();
    say("%s: errno %d, rounding %#x, raised %#x, control %#x\n", call, number, (unsigned)fegetround(), (unsigned)fetestexcept(FE_ALL_EXCEPT), now ^ first);
    errno = 77;
    last = call;
}
#define KEPT(call)    \
    do {              \
        OK(call);     \
        found(#call); \
    } while (0)

int main(void) {
    void *p, *q, *host;
    size_t free_, total;
    // What starts CUDA leaves what it likes there.
    OK(cudaFree(NULL));
    fesetround(FE_TOWARDZERO);
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_INEXACT);
    // Denormals are zero and flushed, as numeric programs have it; a division by zero or an invalid operation is a signal.
    // That something was inexact CUDA may find out, too.
    _mm_setcsr(_mm_getcsr() | 0x8040 | 0x20);
    feenableexcept(FE_DIVBYZERO | FE_INVALID);
    first = _mm_getcsr();
    errno = 77;
    KEPT(cudaMalloc(&p, 12 * MIB));
    KEPT(cudaMalloc(&q, 4 * MIB));
    KEPT(cudaMallocHost(&host, 4 * MIB));
    KEPT(cudaMemset(p, 1, 12 * MIB));
    fill(q, MIB, 1.5f, NULL), found("fill");
    axpy(p, q, MIB, 0.3f, NULL), found("axpy");
    KEPT(cudaMemcpy(host, p, 4 * MIB, DEVICE_TO_HOST));
    KEPT(cudaMemGetInfo(&free_, &total));
    KEPT(cudaDeviceSynchronize());
    say("%016" PRIx64 "\n", digest(host, 4 * MIB));
    KEPT(cudaFree(p));
    KEPT(cudaFree(q));
    KEPT(cudaFreeHost(host));
    say("%s was last\n", last);
    return 0;
}
