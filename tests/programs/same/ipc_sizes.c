//! may say: the program gets CUDA's out-of-memory
// Exports memory of many sizes, one after the other, each amid others that live, and has another process look at it. Hard: its addresses must become free as a whole, and
// come again. Whether it was exported is not said: the tight device has no room for the large ones.
#include "runtime.h"

int cuMemGetAddressRange_v2(uint64_t *, size_t *, uint64_t);

enum { EDGE = 1000 };
static const size_t sizes[] = {MIB, 2 * MIB, 3 * MIB + 512, 10 * MIB, 18 * MIB, 20 * MIB, 22 * MIB, 30 * MIB, 34 * MIB, 64 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct {
    ipc_handle handle;
    size_t floats;
    uint64_t first, last;
} message;

// Each answer is how often what it found there was not what it was told.
static int child(int in, int out) {
    message told;
    while (read(in, &told, sizeof told) == sizeof told && told.floats) {
        float *at;
        OK(cudaIpcOpenMemHandle((void **)&at, told.handle, LAZY_PEER_ACCESS));
        int wrong = (on_device(at, EDGE) != told.first) + (on_device(at + told.floats - EDGE, EDGE) != told.last);
        fill(at, EDGE, 77, NULL);
        OK(cudaDeviceSynchronize());
        OK(cudaIpcCloseMemHandle(at));
        NEED(write(out, &wrong, sizeof wrong) == sizeof wrong);
    }
    return 0;
}

static int is_told_its_size(float *at, size_t size) {
    uint64_t base = 0;
    size_t bytes = 0;
    int status = cuMemGetAddressRange_v2(&base, &bytes, (uint64_t)at + size / 2);
    return status == 0 && base == (uint64_t)at && bytes >= size && bytes < size + 2 * MIB;
}

int main(int argc, char **argv) {
    if (argc == 3) return child(atoi(argv[1]), atoi(argv[2]));
    int in[2], out[2];
    pid_t pid = again(argv[0], out, in);
    // In front of each and behind it.
    float *at[SIZES], *others[SIZES];
    for (int i = 0; i < SIZES; i++) {
        OK(cudaMalloc((void **)&at[i], sizes[i]));
        OK(cudaMalloc((void **)&others[i], i % 2 ? 20 * MIB : 2 * MIB));
        fill(at[i], EDGE, (float)i, NULL);
        fill(at[i] + sizes[i] / 4 - EDGE, EDGE, (float)i + 0.5f, NULL);
        fill(others[i], EDGE, (float)i + 50, NULL);
    }
    uint64_t changed = 0;
    for (int i = 0; i < SIZES; i++) {
        message told = {.floats = sizes[i] / 4};
        told.first = on_device(at[i], EDGE), told.last = on_device(at[i] + told.floats - EDGE, EDGE);
        say("%zu: %d, %016" PRIx64 " %016" PRIx64 "\n", sizes[i], is_told_its_size(at[i], sizes[i]), told.first, told.last);
        int wrong = 0;
        int exported = cudaIpcGetMemHandle(&told.handle, at[i]) == 0;
        cudaGetLastError();
        if (exported) {
            NEED(write(out[1], &told, sizeof told) == sizeof told && read(in[0], &wrong, sizeof wrong) == sizeof wrong);
            uint64_t now = on_device(at[i], EDGE);
            wrong += i > 0 && now != changed, changed = now;
            wrong += on_device(at[i] + told.floats - EDGE, EDGE) != told.last;
        }
        say("wrong %d, %d; beside it %016" PRIx64 "\n", wrong, is_told_its_size(at[i], sizes[i]), on_device(others[i], EDGE));
        OK(cudaFree(at[i]));
    }
    message end = {0};
    NEED(write(out[1], &end, sizeof end) == sizeof end);
    say("ended %d\n", ended(pid));
    for (int i = 0; i < SIZES; i++) OK(cudaFree(others[i]));
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
