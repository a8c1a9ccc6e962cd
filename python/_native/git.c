/* git.c - the git helper's words: commands, URLs, and what git says. No network. */
#include "args.h"

#include <stdlib.h>

static PyObject *owned(char *text)
{
    PyObject *ret = text_or_none(text);

    free(text);
    return ret;
}

/* git_command(repo or None, [words]) -> a shell command of quoted words. */
static PyObject *git_command(PyObject *module, PyObject *args)
{
    struct words {
        const char *repo;
        const char *const *words;
        size_t count;
    } to = { 0 };
    static const struct arg table[] = {
        { "path", ARG_TEXT, offsetof(struct words, repo), 0 },
        { "words", ARG_TEXTS, offsetof(struct words, words), offsetof(struct words, count) },
    };
    PyObject *values[2];
    struct arg_memory mem = { 0 };
    struct abx_error err = { 0 };
    char *text = NULL;
    int r;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &values[0], &values[1]))
        return NULL;
    r = args_parse(table, 2, values, 2, "git_command", &to, &mem);
    if (r == 0 && abx_git_command(to.repo, to.words, to.count, &text, &err) < 0) {
        (void)raise_error(&err);
        r = -1;
    }
    args_done(&mem);
    return r < 0 ? NULL : owned(text);
}

/* git_url(url, user or None, password or None): with credentials, or without any. */
static PyObject *git_url(PyObject *module, PyObject *args)
{
    const char *url, *user, *password;
    struct abx_error err = { 0 };
    char *text = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "szz", &url, &user, &password))
        return NULL;
    if (abx_git_url(url, user, password, &text, &err) < 0)
        return raise_error(&err);
    return owned(text);
}

static PyObject *letter(char c)
{
    return PyUnicode_FromStringAndSize(&c, 1);
}

static PyObject *git_file(const struct abx_git_file *f)
{
    return Py_BuildValue("(NNNN)", text_or_none(f->path), text_or_none(f->renamed_from),
                         letter(f->index), letter(f->worktree));
}

/* git_status(output) -> (branch, upstream, ahead, behind, detached, [(path, renamed from, index, worktree)]). */
static PyObject *git_status(PyObject *module, PyObject *text)
{
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
    struct abx_git_status *status = NULL;
    struct abx_error err = { 0 };
    PyObject *files, *ret;

    (void)module;
    if (!utf8)
        return NULL;
    if (abx_git_status_parse(utf8, &status, &err) < 0)
        return raise_error(&err);
    files = PyList_New((Py_ssize_t)status->file_count);
    for (size_t i = 0; files && i < status->file_count; i++) {
        PyObject *file = git_file(&status->files[i]);

        if (!file || PyList_SetItem(files, (Py_ssize_t)i, file) < 0)
            Py_CLEAR(files);
    }
    ret = Py_BuildValue("(NNLLNN)", text_or_none(status->branch), text_or_none(status->upstream),
                        (long long)status->ahead, (long long)status->behind,
                        PyBool_FromLong(status->detached), files);
    abx_git_status_free(status);
    return ret;
}

/* git_failure(stdout, stderr) -> 1 wants credentials, 2 wants an upstream, 0 something else. */
static PyObject *git_failure(PyObject *module, PyObject *args)
{
    const char *out, *err;

    (void)module;
    if (!PyArg_ParseTuple(args, "ss", &out, &err))
        return NULL;
    return PyLong_FromLong(abx_git_failure(out, err));
}

int git_add(PyObject *module)
{
    static PyMethodDef methods[] = {
        { "git_command", git_command, METH_VARARGS, "A shell command of quoted words." },
        { "git_url", git_url, METH_VARARGS, "A URL with credentials, or without any." },
        { "git_status", git_status, METH_O, "Parses `git status --porcelain=1 -b`." },
        { "git_failure", git_failure, METH_VARARGS, "Why git failed." },
        { NULL, NULL, 0, NULL },
    };

    return PyModule_AddFunctions(module, methods);
}
