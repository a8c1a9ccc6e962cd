/* job.c - sizes and names of job.h. */
#include "engine/job.h"

#include <string.h>

static const char *const class_names[WORKER_CLASSES_] = {
    [WORKER_CREATE] = "create",   [WORKER_REMOVE] = "remove", [WORKER_CONTROL] = "control",
    [WORKER_PREPARE] = "prepare", [WORKER_TRASH] = "trash",   [WORKER_SAVE] = "save",
    [WORKER_MEASURE] = "measure", [WORKER_SWAP] = "swap",
};

size_t job_size(const struct job *j)
{
    size_t head = offsetof(struct job, create);

    if (j->kind == JOB_CREATE)
        return head + sizeof j->create;
    if (j->kind == JOB_MEASURE)
        return head + sizeof j->measure;
    return j->kind == JOB_AUDIT ? head + sizeof j->audit : head;
}

size_t job_result_size(const struct job_result *r)
{
    size_t head = offsetof(struct job_result, u);

    switch (r->kind) {
    case JOB_AUDIT:
        return head + sizeof r->u.audit;
    case JOB_MEASURE:
        return head + sizeof r->u.measured;
    case JOB_CREATE:
    case JOB_PREPARE:
        return head + sizeof r->u.stages;
    case JOB_CHECKPOINT:
        return head + sizeof r->u.checkpoint;
    case JOB_READY:
    case JOB_EXIT:
    case JOB_OOM:
    case JOB_UID_PUT:
    case JOB_REMOVE:
    case JOB_FREEZE:
    case JOB_THAW:
    case JOB_RESIZE:
    case JOB_USAGE:
    case JOB_TRASH:
    case JOB_SAVE:
    case JOB_PUSH_OUT:
    case JOB_CLONE:
    case JOB_EXCHANGE:
        return head + sizeof r->u.usage;
    }
    return head;
}

const char *worker_class_name(enum worker_class c)
{
    return class_names[c];
}

bool worker_class_from_name(const char *name, enum worker_class *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(class_names); i++)
        if (strcmp(name, class_names[i]) == 0) {
            *ret = (enum worker_class)i;
            return true;
        }
    return false;
}
