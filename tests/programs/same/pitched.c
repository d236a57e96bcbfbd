// Memory of padded rows and boxes, with copies of rows and boxes both ways. Hard: the pitch must be that which CUDA chooses, and copies touch part of what they
// span.
#include "runtime.h"

typedef struct { size_t x, y, z, lod; unsigned kind; const void *host; uint64_t device; void *array, *reserved; size_t pitch, height; } end_3d;
typedef struct { end_3d src, dst; size_t width, height, depth; } copy_3d;
int cuMemcpy3D_v2(const copy_3d *), cuMemAllocPitch_v2(uint64_t *, size_t *, size_t, size_t, unsigned);

int main(void) {
    enum { WIDTH = 5000, ROWS = 800 };
    void *at;
    size_t pitch;
    char *host = malloc(WIDTH * ROWS), *back = malloc(WIDTH * ROWS);
    for (int i = 0; i < WIDTH * ROWS; i++) host[i] = (char)(i * 7 + i / 311);
    for (size_t width = 1; width < 100000; width = width * 3 + 1) {
        int status = cudaMallocPitch(&at, &pitch, width, 400);
        say("pitch of %zu: %d %zu\n", width, status, pitch);
        OK(cudaFree(at));
        for (unsigned element = 4; element <= 16; element *= 2) {
            uint64_t place;
            status = cuMemAllocPitch_v2(&place, &pitch, width, 400, element);
            say("of elements of %u: %d %zu\n", element, status, pitch);
            OK(cudaFree((void *)place));
        }
    }
    void *all[3];
    for (int i = 0; i < 3; i++) {
        OK(cudaMallocPitch(&all[i], &pitch, WIDTH, ROWS));
        OK(cudaMemset2D(all[i], pitch, i + 1, WIDTH, ROWS));
        OK(cudaMemcpy2D((char *)all[i] + 10 * pitch + 100, pitch, host + 50, WIDTH, 1000, 300, HOST_TO_DEVICE));
    }
    OK(cudaMemcpy2DAsync((char *)all[0] + 3, pitch, (char *)all[1] + 5 * pitch, pitch, 4000, 600, DEVICE_TO_DEVICE, NULL));
    for (int i = 0; i < 3; i++) {
        memset(back, 0, WIDTH * ROWS);
        OK(cudaMemcpy2D(back, WIDTH, all[i], pitch, WIDTH, ROWS, DEVICE_TO_HOST));
        say("rows %016" PRIx64 "\n", digest(back, WIDTH * ROWS));
        OK(cudaFree(all[i]));
    }
    pitched box;
    OK(cudaMalloc3D(&box, (extent3){1000, 40, 90}));
    say("box %zu %zu %zu\n", box.pitch, box.xsize, box.ysize);
    copy_3d in = {.src = {.kind = 1, .host = host, .pitch = 500, .height = 40}, .dst = {.x = 7, .y = 2, .z = 1, .kind = 2, .device = (uint64_t)box.ptr, .pitch = box.pitch, .height = 40}, .width = 500, .height = 30, .depth = 80};
    OK(cudaMemset(box.ptr, 3, box.pitch * 40 * 90));
    OK(cuMemcpy3D_v2(&in));
    copy_3d out = {.src = in.dst, .dst = {.kind = 1, .host = back, .pitch = 700, .height = 50}, .width = 600, .height = 35, .depth = 85};
    out.src.x = out.src.y = out.src.z = 0;
    memset(back, 0, WIDTH * ROWS);
    OK(cuMemcpy3D_v2(&out));
    say("boxes %016" PRIx64 "\n", digest(back, 700 * 50 * 85));
    OK(cudaFree(box.ptr));
    free(host), free(back);
    return 0;
}
