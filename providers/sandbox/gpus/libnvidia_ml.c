/* A simulated libnvidia-ml.so.1: as much of NVML's interface as facts are read with, answered from a text file.
 *
 * Lines of /etc/simulated-gpus, read at nvmlInit:
 *   driver VERSION            nvml VERSION            cuda NUMBER (12040 is 12.4)
 *   gpu INDEX UUID PCI-ID SERIAL MEMORY-BYTES MIG(0, 1; - for one that cannot) MODEL...
 *   lost INDEX                this GPU has fallen off the bus
 *   hang FUNCTION [INDEX]     the call never returns
 *   fail FUNCTION CODE [INDEX]
 * FUNCTION is the name that is exported, such as nvmlDeviceGetUUID. Without the file there are no GPUs and no
 * driver: nvmlInit answers NVML_ERROR_DRIVER_NOT_LOADED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
  DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, VERSION_MISMATCH = 18, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

typedef int nvmlReturn_t;

typedef struct {
  char uuid[80], pci[32], serial[30], model[96], mig;
  unsigned long long memory;
  int present, lost;
} Gpu;

typedef Gpu *nvmlDevice_t;

typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;

typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct { char function[64]; int index, code; } Fault;

enum { MOST = 64, ANY = -1, HANG = -1 };
static Gpu gpus[MOST];
static Fault faults[MOST];
static int fault_count, initialized;
static char driver[80], nvml[80];
static int cuda;

static void read_line(const char *line) {
  Gpu gpu = {.present = 1};
  Fault fault = {.index = ANY, .code = HANG};
  int index, model_at = 0;

  if (sscanf(line, "gpu %d %79s %31s %29s %llu %c %n", &index, gpu.uuid, gpu.pci, gpu.serial, &gpu.memory,
             &gpu.mig, &model_at) == 6 && model_at && index >= 0 && index < MOST) {
    snprintf(gpu.model, sizeof gpu.model, "%s", line + model_at);
    gpu.model[strcspn(gpu.model, "\n")] = 0;
    gpu.lost = gpus[index].lost;
    gpus[index] = gpu;
  } else if (sscanf(line, "lost %d", &index) == 1 && index >= 0 && index < MOST) {
    gpus[index].lost = 1;
  } else if (fault_count < MOST &&
             (sscanf(line, "hang %63s %d", fault.function, &fault.index) >= 1 ||
              sscanf(line, "fail %63s %d %d", fault.function, &fault.code, &fault.index) >= 2)) {
    faults[fault_count++] = fault;
  } else {
    sscanf(line, "driver %79s", driver);
    sscanf(line, "nvml %79s", nvml);
    sscanf(line, "cuda %d", &cuda);
  }
}

static void read_file(void) {
  char line[512];
  FILE *file = fopen("/etc/simulated-gpus", "r");

  memset(gpus, 0, sizeof gpus);
  fault_count = driver[0] = nvml[0] = cuda = 0;
  while (file && fgets(line, sizeof line, file)) read_line(line);
  if (file) fclose(file);
}

static nvmlReturn_t trouble(const char *function, int index) {
  for (int i = 0; i < fault_count; i++) {
    if (strcmp(faults[i].function, function) || (faults[i].index != ANY && faults[i].index != index)) continue;
    while (faults[i].code == HANG) pause();
    return faults[i].code;
  }
  return initialized ? SUCCESS : UNINITIALIZED;
}

static nvmlReturn_t device_trouble(const char *function, nvmlDevice_t device) {
  if (device < gpus || device >= gpus + MOST || !device->present) return INVALID_ARGUMENT;
  if (device->lost) return GPU_IS_LOST;
  return trouble(function, (int)(device - gpus));
}

static nvmlReturn_t copy(char *to, unsigned size, const char *text) {
  if (!to) return INVALID_ARGUMENT;
  if (strlen(text) >= size) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return SUCCESS;
}

#define CHECK(call) do { nvmlReturn_t found = (call); if (found) return found; } while (0)
#define OF_SYSTEM CHECK(trouble(__func__, ANY))
#define OF(device) CHECK(device_trouble(__func__, device))

static nvmlReturn_t init(const char *function) {
  read_file();
  initialized = 1;
  nvmlReturn_t found = trouble(function, ANY);
  if (!found && !driver[0]) found = DRIVER_NOT_LOADED;
  initialized = !found;
  return found;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return init(__func__); }

nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }

nvmlReturn_t nvmlShutdown(void) {
  OF_SYSTEM;
  initialized = 0;
  return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Driver/library version mismatch";
    case ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
  OF_SYSTEM;
  return copy(version, length, driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
  OF_SYSTEM;
  return copy(version, length, nvml);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  OF_SYSTEM;
  *version = cuda;
  return SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  OF_SYSTEM;
  *version = cuda;
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
  OF_SYSTEM;
  for (*count = 0; *count < MOST && gpus[*count].present; ++*count);
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
  if (index >= MOST) return INVALID_ARGUMENT;
  OF(gpus + index);
  *device = gpus + index;
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  OF_SYSTEM;
  for (int i = 0; i < MOST && gpus[i].present; i++)
    if (!strcmp(gpus[i].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(i, device);
  return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
  OF(device);
  *index = (unsigned)(device - gpus);
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
  OF(device);
  return copy(uuid, length, device->uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
  OF(device);
  return copy(name, length, device->model);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
  OF(device);
  return strcmp(device->serial, "-") ? copy(serial, length, device->serial) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  OF(device);
  memset(pci, 0, sizeof *pci);
  if (sscanf(device->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3) return UNKNOWN;
  snprintf(pci->busId, sizeof pci->busId, "%s", device->pci);
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
           pci->device & 0xff);
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  OF(device);
  *memory = (nvmlMemory_t){.total = device->memory, .free = device->memory};
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  OF(device);
  if (memory->version != (sizeof *memory | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
  memory->total = memory->free = device->memory;
  memory->reserved = memory->used = 0;
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  OF(device);
  if (device->mig == '-') return NOT_SUPPORTED;
  *current = *pending = device->mig == '1';
  return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
  OF(device);
  *current = *pending = 1;
  return SUCCESS;
}
