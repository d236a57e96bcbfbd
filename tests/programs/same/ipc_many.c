//! says: cannot be shared between processes by CUDA IPC here
// Makes more small allocations than the shim keeps apart from each other, and exports some of them. Hard: those that it does not keep apart cannot be exported, must stay as they
// are, and become few again.
#include "runtime.h"

enum { MANY = 1100, SOME = 3, FEW = 50, N = MIB / 4, EDGE = 1000 };
static float *at[MANY];

// The first, the last and a few between them; the rest is there and no more.
static int is_used(int i) { return i <= SOME || i >= MANY - SOME || i % FEW == 0; }

static void make(int i) {
    OK(cudaMalloc((void **)&at[i], N * 4));
    if (is_used(i)) fill(at[i], EDGE, (float)i, NULL);
}

static int export_one(int i) {
    ipc_handle handle;
    int status = cudaIpcGetMemHandle(&handle, at[i]);
    cudaGetLastError();
    say("%d: %016" PRIx64 "\n", i, on_device(at[i], EDGE));
    return status;
}

int main(void) {
    for (int i = 0; i < MANY; i++) make(i);
    say("exported %d\n", export_one(0));
    // Whether is not said: without help it is.
    for (int i = 1; i <= SOME; i++) export_one(MANY - i);
    for (int i = 0; i < MANY / 2; i++) OK(cudaFree(at[i]));
    for (int i = 0; i < SOME; i++) make(i);
    say("exported %d\n", export_one(SOME - 1));
    uint64_t all = 0;
    for (int i = MANY / 2; i < MANY; i++) {
        if (is_used(i)) all = all * 31 + on_device(at[i], EDGE);
        OK(cudaFree(at[i]));
    }
    for (int i = 0; i < SOME; i++) OK(cudaFree(at[i]));
    say("%016" PRIx64 "\n", all);
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
