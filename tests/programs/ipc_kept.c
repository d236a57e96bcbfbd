// Memory of another process that is freed there, or whose process is killed, while it is open here: it lives on. CUDA promises neither (driver API reference,
// cuIpcOpenMemHandle), so this is no program that must behave the same on a GPU. What is not open yet can be opened no more.
#include "same/runtime.h"

enum { N = 3 * MIB / 4 };

static float *at[3];
static ipc_handle handle[3];

// Exports three, and frees the first when it is told to, and waits to be killed.
static int exporter(int in, int out) {
    for (int i = 0; i < 3; i++) {
        OK(cudaMalloc((void **)&at[i], N * 4));
        fill(at[i], N, (float)i + 1, NULL);
        OK(cudaIpcGetMemHandle(&handle[i], at[i]));
    }
    OK(cudaDeviceSynchronize());
    NEED(write(out, handle, sizeof handle) == sizeof handle);
    char byte;
    NEED(read(in, &byte, 1) == 1);
    OK(cudaFree(at[0]));
    OK(cudaFree(at[1]));
    NEED(write(out, ".", 1) == 1);
    pause();
    return 92;
}

int main(int argc, char **argv) {
    if (argc == 3) return exporter(atoi(argv[1]), atoi(argv[2]));
    int in[2], out[2];
    pid_t pid = again(argv[0], out, in);
    char byte;
    NEED(read(in[0], handle, sizeof handle) == sizeof handle);
    OK(cudaIpcOpenMemHandle((void **)&at[0], handle[0], LAZY_PEER_ACCESS));
    OK(cudaIpcOpenMemHandle((void **)&at[2], handle[2], LAZY_PEER_ACCESS));
    NEED(write(out[1], ".", 1) == 1 && read(in[0], &byte, 1) == 1);
    say("freed there: %016" PRIx64 "\n", on_device(at[0], N));
    say("opened too late: %d\n", cudaIpcOpenMemHandle((void **)&at[1], handle[1], LAZY_PEER_ACCESS));
    say("last %d\n", cudaGetLastError());
    NEED(kill(pid, SIGKILL) == 0);
    say("ended %d\n", ended(pid));
    axpy(at[2], at[0], N, 0.5f, NULL);
    say("nobody else's: %016" PRIx64 "\n", on_device(at[2], N));
    say("of nobody: %d\n", cudaIpcOpenMemHandle((void **)&at[1], handle[1], LAZY_PEER_ACCESS));
    say("last %d\n", cudaGetLastError());
    OK(cudaIpcCloseMemHandle(at[0]));
    OK(cudaIpcCloseMemHandle(at[2]));
    say("closed: %016" PRIx64 "\n", train(1));
    return 0;
}
