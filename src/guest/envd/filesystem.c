/* filesystem.c - filesystem.Filesystem. */
#include "guest/envd/call.h"
#include "schema/filesystem.pb-c.h"

static void handle_unbuilt(struct call *c)
{
    struct abx_err err = { 0 };

    (void)err_set(&err, ABX_UNIMPLEMENTED, "%s is not built yet", c->method->path);
    call_fail(c, &err);
}

#define METHOD(name, type, kind, handle)                                                           \
    { "/filesystem.Filesystem/" name, &filesystem__##type##__descriptor, kind, handle, NULL }

const struct call_method filesystem_methods[] = {
    METHOD("WatchDir", watch_dir_request, CALL_SERVER_STREAM, handle_unbuilt),
    METHOD("CreateWatcher", create_watcher_request, CALL_UNARY, handle_unbuilt),
    METHOD("GetWatcherEvents", get_watcher_events_request, CALL_UNARY, handle_unbuilt),
    METHOD("RemoveWatcher", remove_watcher_request, CALL_UNARY, handle_unbuilt),
    { 0 },
};
