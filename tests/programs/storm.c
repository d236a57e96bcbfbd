// Preloaded in front of everything else, into a program that knows nothing of it: a thread that migrates the program's managed
// memory back and forth, as any thread of a process may by the driver's own rules (UVM_MIGRATE on the process's own file of
// /dev/nvidia-uvm; docs of the request: crates/emu/device/src/uvm). Which pages go where and when cannot change a result.
//
// STORM=SEED,COUNT: what random numbers to use, and after how many requests to stop. At the end one line on stderr says how many
// requests the driver granted and how many it refused; a range that was freed meanwhile is refused, which is legal too.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { RANGES = 256, PAGE = 4096, LONGEST = 512, MIGRATE = 51, ASYNC = 1 };
static struct {
    uint64_t start, bytes;
} ranges[RANGES];
static int live;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static atomic_int stop, started;
static atomic_ulong granted, refused;
static uint64_t state, count;

static uint64_t below(uint64_t n) { // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1d >> 11) % n;
}

// One request on `fd`; the driver's status, or -1 if the file is none of the driver's.
static int migrate(int fd, uint64_t base, uint64_t bytes, const unsigned char *where, int how) {
    uint32_t p[20] = {0};
    memcpy(p, &base, 8), memcpy(p + 2, &bytes, 8), memcpy(p + 4, where, 16);
    p[8] = (uint32_t)how;
    p[13] = (uint32_t)-1;
    return ioctl(fd, MIGRATE, p) ? -1 : (int)p[18];
}

// The file of the VA space: the one on which such a request is granted.
static int find(uint64_t base, const unsigned char *where) {
    DIR *fds = opendir("/proc/self/fd");
    int found = -1;
    for (struct dirent *d; found < 0 && (d = readdir(fds));) {
        char path[300], link[64] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%s", d->d_name);
        if (readlink(path, link, sizeof link - 1) > 0 && strcmp(link, "/dev/nvidia-uvm") == 0
            && migrate(atoi(d->d_name), base, PAGE, where, 0) == 0)
            found = atoi(d->d_name);
    }
    closedir(fds);
    return found;
}

static void *storm(void *nothing) {
    static const unsigned char cpu[16] = {0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73};
    unsigned char gpu[16];
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    int (*uuid)(void *, int) = cuda ? (int (*)(void *, int))dlsym(cuda, "cuDeviceGetUuid") : NULL;
    if (!uuid || uuid(gpu, 0)) return nothing;
    for (int fd = -1; count > 0 && !stop; count--) {
        pthread_mutex_lock(&lock);
        int n = live ? (int)below((uint64_t)live) : -1;
        // Whole pages; small allocations share theirs.
        uint64_t start = n < 0 ? 0 : ranges[n].start / PAGE * PAGE;
        uint64_t pages = n < 0 ? 0 : (ranges[n].start + ranges[n].bytes - start + PAGE - 1) / PAGE;
        pthread_mutex_unlock(&lock);
        if (n >= 0) {
            uint64_t first = below(pages), most = pages - first < LONGEST ? pages - first : LONGEST;
            if (fd < 0) fd = find(start, cpu);
            const unsigned char *where = below(2) ? gpu : cpu;
            int outcome = migrate(fd, start + first * PAGE, (1 + below(most)) * PAGE, where, below(2) ? ASYNC : 0);
            atomic_fetch_add(outcome == 0 ? &granted : &refused, 1);
        }
        usleep((useconds_t)below(50));
    }
    return nothing;
}

static void came(void *at, size_t bytes) {
    const char *asked = getenv("STORM");
    if (!asked) return;
    pthread_mutex_lock(&lock);
    if (live < RANGES) ranges[live].start = (uint64_t)at, ranges[live++].bytes = bytes;
    if (!atomic_exchange(&started, 1)) {
        char *comma;
        state = strtoull(asked, &comma, 10) * 0x9e3779b97f4a7c15 | 1;
        count = *comma == ',' ? strtoull(comma + 1, NULL, 10) : 0;
        if (pthread_create(&thread, NULL, storm, NULL)) abort();
    }
    pthread_mutex_unlock(&lock);
}

// The program's own calls, passed on; only what can be managed memory is remembered (the shim leaves less than 1 MiB alone).
#define NEXT(name, ...) ((int (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
int cudaMalloc(void **out, size_t bytes) {
    int status = NEXT("cudaMalloc", void **, size_t)(out, bytes);
    if (status == 0 && bytes >= 1 << 20) came(*out, bytes);
    return status;
}
int cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    int status = NEXT("cudaMallocManaged", void **, size_t, unsigned)(out, bytes, flags);
    if (status == 0) came(*out, bytes);
    return status;
}
int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    int status = NEXT("cudaMallocPitch", void **, size_t *, size_t, size_t)(out, pitch, width, height);
    if (status == 0 && *pitch * height >= 1 << 20) came(*out, *pitch * height);
    return status;
}
int cudaFree(void *at) {
    pthread_mutex_lock(&lock);
    for (int n = 0; n < live; n++)
        if (ranges[n].start == (uint64_t)at) ranges[n--] = ranges[--live];
    pthread_mutex_unlock(&lock);
    return NEXT("cudaFree", void *)(at);
}

__attribute__((destructor)) static void calm(void) {
    if (!started) return;
    stop = 1;
    pthread_join(thread, NULL);
    fprintf(stderr, "storm: %lu migrations granted, %lu refused\n", granted, refused);
}
