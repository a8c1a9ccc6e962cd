/* work.c - see work.h. */
#include "guest/daemon/work.h"

#include <string.h>

#include "guest/daemon/as_user.h"

static void on_work(uv_work_t *req)
{
    struct work *w = req->data;

    if (!w->as) {
        w->run(w);
        return;
    }
    if (as_user_begin(w->as, &w->err) < 0)
        return;
    w->run(w);
    as_user_end(w->as);
}

static void on_done(uv_work_t *req, int status)
{
    struct work *w = req->data;

    if (status < 0 && !w->err.code)
        (void)err_set(&w->err, ABX_CANCELED, "work was canceled");
    w->done(w);
}

int work_start(uv_loop_t *loop, struct work *w, const struct user *as, void (*run)(struct work *w),
               void (*done)(struct work *w))
{
    memset(&w->err, 0, sizeof(w->err));
    w->req.data = w;
    w->as = as;
    w->run = run;
    w->done = done;
    return uv_queue_work(loop, &w->req, on_work, on_done) < 0 ? ABX_INTERNAL : 0;
}
