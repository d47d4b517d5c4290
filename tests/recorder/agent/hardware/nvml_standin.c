/* A stand-in for libnvidia-ml.so.1, as far as the hardware poller uses it. Its behavior is set in NVML_STANDIN, such as
   "gpus=3;mig=1;unsupported=power;hang=2;lost=0;lost_after=2;xid=79;watts=700;old=1". Numbers of GPUs count from 0. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15 };

struct device { int index, mig, reads; };
static struct device gpus[8], parts[8];

static int setting(const char *name, int otherwise) {
    const char *found = getenv("NVML_STANDIN");
    size_t length = strlen(name);
    while (found && *found) {
        if (!strncmp(found, name, length) && found[length] == '=') return atoi(found + length + 1);
        found = strchr(found, ';');
        if (found) found++;
    }
    return otherwise;
}

static int unsupported(const char *feature) {
    const char *all = getenv("NVML_STANDIN");
    char wanted[64];
    snprintf(wanted, sizeof wanted, "unsupported=%s", feature);
    return all && strstr(all, wanted) != NULL;
}

/* What each question to a device begins with. */
static int asked(struct device *device, const char *feature) {
    if (setting("hang", -1) == device->index) for (;;) sleep(1000);
    if (setting("lost", -1) == device->index && device->reads >= setting("lost_after", 0)) return GPU_IS_LOST;
    if (unsupported(feature)) return NOT_SUPPORTED;
    return SUCCESS;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = setting("gpus", 1); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **handle) {
    gpus[index].index = index;
    *handle = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "%s-%08d-aaaa", device->mig ? "MIG" : "GPU", device->index);
    return SUCCESS;
}

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    *current = *pending = setting("mig", -1) == device->index;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) { *count = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **handle) {
    if (index != 1) return NOT_FOUND;
    parts[device->index] = (struct device){device->index, 1, 0};
    *handle = &parts[device->index];
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    int said = asked(device, "memory");
    unsigned long long gib = 1ull << 30, total = device->mig ? 10 * gib : 80 * gib;
    device->reads++;
    *memory = (struct memory){total, total - (device->index + 1) * gib, (device->index + 1) * gib};
    return said;
}

struct rates { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(struct device *device, struct rates *rates) {
    *rates = (struct rates){50 + device->index, 20};
    return device->mig ? NOT_SUPPORTED : asked(device, "utilization");
}

int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    *milliwatts = 300500 + device->index;
    return device->mig ? NOT_SUPPORTED : asked(device, "power");
}

int nvmlDeviceGetTotalEnergyConsumption(struct device *device, unsigned long long *millijoules) {
    static time_t began;
    if (!began) began = time(NULL);
    *millijoules = 123456789012ull + device->index + setting("watts", 0) * 1000ull * (time(NULL) - began);
    return device->mig ? NOT_SUPPORTED : asked(device, "energy");
}

int nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius) {
    *celsius = 61 + device->index;
    return device->mig ? NOT_SUPPORTED : asked(device, "temperature");
}

int nvmlDeviceGetClockInfo(struct device *device, unsigned clock, unsigned *mhz) {
    *mhz = clock == 1 ? 1980 : 2619;
    return device->mig ? NOT_SUPPORTED : asked(device, "clock");
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *reasons) {
    *reasons = 0x1 | 0x4 | 0x40;
    return device->mig ? NOT_SUPPORTED : asked(device, "throttle");
}

int nvmlDeviceGetPcieThroughput(struct device *device, unsigned counter, unsigned *kilobytes) {
    *kilobytes = counter == 1 ? 7000 : 5000;
    return device->mig ? NOT_SUPPORTED : asked(device, "pcie");
}

#ifndef OLD
int nvmlDeviceGetTotalEccErrors(struct device *device, unsigned type, unsigned counter, unsigned long long *count) {
    *count = type == 0 ? 4 : 1;
    return device->mig ? NOT_SUPPORTED : asked(device, "ecc");
}
#endif

struct event { struct device *device; unsigned long long type, data; unsigned instance, compute; };
static int told;

int nvmlEventSetCreate(void **set) { *set = &told; return SUCCESS; }
int nvmlEventSetFree(void *set) { return SUCCESS; }
int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, void *set) {
    return asked(device, "events");
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    if (setting("xid", 0) == 0 || told >= 2) return TIMEOUT;
    told++;
    *event = (struct event){&gpus[0], 8, setting("xid", 0), 0, 0};
    return SUCCESS;
}

const char *nvmlErrorString(int result) { return "an error of the stand-in"; }
