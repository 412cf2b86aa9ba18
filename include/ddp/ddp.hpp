// SPDX-License-Identifier: Apache-2.0
/** @file
 * libddp for C++17 and later: handles that release themselves, exceptions, spans, functions. A thin layer over the C API, in
 * headers alone; a program links libddp as a C program does, and may use both at once: every object gives its C handle with
 * get().
 *
 *     ddp::Group group;
 *     ddp::Model model(group);
 *     model.add_parameter("w", w);                // any array, vector or span; libddp owns the gradient
 *     model.commit();
 *     auto sgd = ddp::Optimizer::sgd(model);
 *     ddp::Backward pass(model);
 *     ...                                         // fill model.grad<float>(0)
 *     pass.mark_ready(0);
 *     pass.end();
 *     sgd.step();
 *
 * The comment of each C function describes what it does, when you may call it and how it fails; these headers describe only
 * what C++ adds. All of it may still change, as <ddp/experimental.h> may (include/CPP.md).
 */
#ifndef DDP_DDP_HPP
#define DDP_DDP_HPP

#if !defined(__cplusplus) || (__cplusplus < 201703L && !defined(_MSVC_LANG))
#error "<ddp/ddp.hpp> needs C++17; <ddp/ddp.h> is for C and every C++ from 11 on"
#endif

/* The order in which to read them. */
/* clang-format off */
#include "ddp/cpp/error.hpp"
#include "ddp/cpp/tensor.hpp"
#include "ddp/cpp/group.hpp"
#include "ddp/cpp/request.hpp"
#include "ddp/cpp/model.hpp"
#include "ddp/cpp/backward.hpp"
#include "ddp/cpp/optimizer.hpp"
#include "ddp/cpp/ema.hpp"
#include "ddp/cpp/state.hpp"
#include "ddp/cpp/sampler.hpp"
#include "ddp/cpp/hook.hpp"
#include "ddp/cpp/batch_norm.hpp"
/* clang-format on */

#endif
