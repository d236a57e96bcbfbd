// Shares memory with a process that it starts: small and large, while more is in use than the tight device has. The other reads it, writes part of it, closes it;
// then it is read, written, used by kernels, and freed. Hard: what was made managed cannot be exported.
#include "runtime.h"

enum { N = 4 * MIB / 4, SMALL = 1000, PART = N / 2 + 3 };

typedef struct {
    ipc_handle small, large, done;
} handles;

static void tell(int out) { NEED(write(out, ".", 1) == 1); }
static void hear(int in) {
    char byte;
    NEED(read(in, &byte, 1) == 1);
}

static int child(int in, int out) {
    handles from;
    NEED(read(in, &from, sizeof from) == sizeof from);
    float *small, *large, *again;
    event_t done;
    OK(cudaIpcOpenEventHandle(&done, from.done));
    OK(cudaStreamWaitEvent(NULL, done, 0));
    OK(cudaIpcOpenMemHandle((void **)&small, from.small, LAZY_PEER_ACCESS));
    OK(cudaIpcOpenMemHandle((void **)&large, from.large, LAZY_PEER_ACCESS));
    OK(cudaIpcOpenMemHandle((void **)&again, from.large, LAZY_PEER_ACCESS));
    say("opened again: the same place %d\n", again == large);
    say("there: small %016" PRIx64 ", large %016" PRIx64 "\n", on_device(small, SMALL), on_device(large, N));
    attributes found;
    OK(cudaPointerGetAttributes(&found, large));
    say("there: kind %d, device %d\n", found.kind, found.device);
    say("there: beside it %016" PRIx64 "\n", train(5));
    axpy(large + PART, large, 1000, 0.5f, NULL);
    OK(cudaMemset(small, 0x3f, 400));
    OK(cudaDeviceSynchronize());
    OK(cudaIpcCloseMemHandle(again));
    say("there: large %016" PRIx64 "\n", on_device(large, N));
    OK(cudaIpcCloseMemHandle(large));
    OK(cudaIpcCloseMemHandle(small));
    OK(cudaEventDestroy(done));
    tell(out);
    hear(in);
    say("there: %016" PRIx64 "\n", train(6));
    return 7;
}

int main(int argc, char **argv) {
    if (argc == 3) return child(atoi(argv[1]), atoi(argv[2]));
    float *small, *large, *more, *own, *pool;
    handles to;
    ipc_handle wrong;
    event_t done;
    OK(cudaMalloc((void **)&small, SMALL * 4));
    OK(cudaMalloc((void **)&large, N * 4));
    OK(cudaMalloc((void **)&more, N * 4));
    OK(cudaMallocManaged((void **)&own, N * 4, ATTACH_GLOBAL));
    OK(cudaEventCreateWithFlags(&done, NO_TIMING | INTERPROCESS));
    fill(small, SMALL, 1, NULL);
    fill(large, N, 2, NULL);
    fill(more, N, 3, NULL);
    OK(cudaEventRecord(done, NULL));
    OK(cudaIpcGetMemHandle(&to.small, small));
    OK(cudaIpcGetMemHandle(&to.large, large));
    OK(cudaIpcGetMemHandle(&to.large, large));
    OK(cudaIpcGetEventHandle(&to.done, done));
    say("managed %d\n", cudaIpcGetMemHandle(&wrong, own));
    say("last %d\n", cudaGetLastError());
    say("pool %d\n", cudaMallocAsync((void **)&pool, 4 * MIB, NULL));
    say("pool %d\n", cudaIpcGetMemHandle(&wrong, pool));
    say("last %d\n", cudaGetLastError());
    say("last %d\n", cudaGetLastError());
    say("large %016" PRIx64 ", more %016" PRIx64 "\n", on_device(large, N), on_device(more, N));
    say("own %d\n", cudaIpcOpenMemHandle((void **)&own, to.large, LAZY_PEER_ACCESS));
    say("last %d\n", cudaGetLastError());

    int in[2], out[2];
    pid_t pid = again(argv[0], out, in);
    NEED(write(out[1], &to, sizeof to) == sizeof to);
    hear(in[0]);
    say("small %016" PRIx64 ", large %016" PRIx64 "\n", on_device(small, SMALL), on_device(large, N));
    axpy(large, more, N, 0.25f, NULL);
    say("large %016" PRIx64 ", more %016" PRIx64 "\n", on_device(large, N), on_device(more, N));
    attributes found;
    OK(cudaPointerGetAttributes(&found, large + 1000));
    say("device %d\n", found.device);
    say("freed inside %d\n", cudaFree(large + 1000));
    say("last %d\n", cudaGetLastError());
    OK(cudaFree(large));
    say("freed again %d\n", cudaFree(large));
    say("last %d\n", cudaGetLastError());
    OK(cudaFree(small));
    OK(cudaFree(more));
    OK(cudaEventDestroy(done));
    tell(out[1]);
    say("ended %d\n", ended(pid));
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
