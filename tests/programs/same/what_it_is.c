// Asks of every kind of memory where it is, where it begins, and what is behind it. Hard: device memory that is managed beneath must be found at every address of it, and at
// none that is not the program's.
#include "runtime.h"

int cuPointerGetAttribute(void *, int, uint64_t), cuMemGetAddressRange_v2(uint64_t *, size_t *, uint64_t);
int cuPointerGetAttributes(unsigned, const int *, void **, uint64_t);
enum { MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, IS_MANAGED = 8, DEVICE_ORDINAL = 9 };

static void ask(const char *what, char *at, size_t size) {
    for (size_t offset = 0; offset <= size; offset += size / 2) {
        char *here = at + offset - (offset == size);
        attributes found = {0};
        int status = cudaPointerGetAttributes(&found, here), last = cudaGetLastError();
        say("%s: %d %d; kind %d, device %d, by its own address %d, on the host %d\n", what, status, last, found.kind, found.device, found.on_device == here, found.on_host != NULL);
        unsigned kind = 99, ordinal = 99;
        uint64_t base = 0, device = 0;
        size_t bytes = 0;
        int of_kind = cuPointerGetAttribute(&kind, MEMORY_TYPE, (uint64_t)here), of_ordinal = cuPointerGetAttribute(&ordinal, DEVICE_ORDINAL, (uint64_t)here);
        say("by the driver: %d kind %u, %d device %u", of_kind, kind, of_ordinal, ordinal);
        status = cuPointerGetAttribute(&device, DEVICE_POINTER, (uint64_t)here);
        say(", %d address %d\n", status, device == (uint64_t)here);
        // A truth value may have one byte or four.
        unsigned managed[2] = {0, 0};
        void *on_host[2] = {(void *)1, (void *)1};
        status = cuPointerGetAttribute(&managed[0], IS_MANAGED, (uint64_t)here);
        say("managed %d %u, ", status, managed[0]);
        status = cuPointerGetAttribute(&on_host[0], HOST_POINTER, (uint64_t)here);
        say("on the host %d %d\n", status, status == 0 && on_host[0]);
        const int which[] = {IS_MANAGED, HOST_POINTER, DEVICE_ORDINAL};
        void *outs[] = {&managed[1], &on_host[1], &ordinal};
        status = cuPointerGetAttributes(3, which, outs, (uint64_t)here);
        say("together %d: managed %u, on the host %d, device %u\n", status, managed[1], on_host[1] != NULL, ordinal);
        status = cuMemGetAddressRange_v2(&base, &bytes, (uint64_t)here);
        say("range %d: from its start %d, of its size %d\n", status, base == (uint64_t)at, bytes >= size && bytes < size + 2 * MIB);
    }
}

int main(void) {
    void *p;
    pitched box;
    size_t pitch;
    const size_t sizes[] = {256, 4096, MIB, MIB + 512, 2 * MIB, 3 * MIB + 4096, 5 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        OK(cudaMalloc(&p, sizes[i]));
        ask("malloc", p, sizes[i]);
        OK(cudaFree(p));
        say("and freed: %d\n", cudaMemset(p, 0, 16));
        cudaGetLastError();
    }
    OK(cudaMallocManaged(&p, 3 * MIB, ATTACH_GLOBAL));
    ask("managed", p, 3 * MIB);
    OK(cudaFree(p));
    OK(cudaMallocPitch(&p, &pitch, 5000, 300));
    ask("pitched", p, 300 * pitch);
    OK(cudaFree(p));
    OK(cudaMalloc3D(&box, (extent3){700, 50, 60}));
    ask("box", box.ptr, box.pitch * 50 * 60);
    OK(cudaFree(box.ptr));
    OK(cudaMallocHost(&p, 2 * MIB));
    ask("pinned", p, 2 * MIB);
    OK(cudaFreeHost(p));
    return 0;
}
