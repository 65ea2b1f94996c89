/* Moves the wall clock of the program it is preloaded into by the nanoseconds at the start of $FAULTS_CLOCK. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_offset(void) {
    const char *path = getenv("FAULTS_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    real = dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t all = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + *offset;
        now->tv_sec = all / INT64_C(1000000000);
        now->tv_nsec = all % INT64_C(1000000000);
    }
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *where) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (where) *where = precise.tv_sec;
    return precise.tv_sec;
}
