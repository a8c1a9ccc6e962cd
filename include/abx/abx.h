/* abx.h - all of libabx. docs/c-api.md walks through it, examples/ has whole programs. */
#ifndef ABX_ABX_H
#define ABX_ABX_H

#include "abx/client.h"
#include "abx/code.h"
#include "abx/commands.h"
#include "abx/config.h"
#include "abx/error.h"
#include "abx/files.h"
#include "abx/git.h"
#include "abx/http.h"
#include "abx/sandbox.h"
#include "abx/server.h"

#endif
