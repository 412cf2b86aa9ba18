# SPDX-License-Identifier: Apache-2.0
# libddp.a: one object in which only the functions of the public API have names that a linker sees, so that a program's own Asio, libsodium or
# namespace ddp do not meet ours. It needs the C++ library, which the shared one has inside. Modules are opened at run time all the same.
set(objects $<TARGET_OBJECTS:ddp> $<TARGET_FILE:ddp_core>)
set(static_needs ${CMAKE_DL_LIBS} m)
if(DDP_SODIUM_LIBRARY MATCHES "\\.a$")
  list(APPEND objects ${DDP_SODIUM_LIBRARY})
else()
  list(APPEND static_needs sodium)
endif()
if("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  list(PREPEND static_needs c++)
else()
  list(PREPEND static_needs stdc++)
endif()
if(CMAKE_THREAD_LIBS_INIT)
  list(APPEND static_needs pthread)
endif()

# Groups of sections that several objects may hold would leave with another object's copy, whose names are hidden: they are made plain sections.
set(whole ${CMAKE_CURRENT_BINARY_DIR}/libddp_whole${CMAKE_CXX_OUTPUT_EXTENSION})
add_custom_command(OUTPUT ${whole}
  COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${whole} ${objects}
  # What is unique in a process (GNU's binding "u") cannot be hidden before it is weak.
  COMMAND sh -c "\"$1\" --defined-only \"$2\" | sed -n 's/^[0-9a-f]* u //p' >\"$2.unique\"" - ${CMAKE_NM} ${whole}
  COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=${whole}.unique ${whole}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=ddp_* --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* ${whole}
  DEPENDS ddp_core ddp COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining libddp.a")
add_library(ddp_static STATIC ${whole})
set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(ddp_static PROPERTIES OUTPUT_NAME ddp LINKER_LANGUAGE C EXPORT_NAME static)
target_include_directories(ddp_static INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(ddp_static INTERFACE ${static_needs})
add_library(ddp::static ALIAS ddp_static)

if((DDP_STATIC AND NOT DDP_SANITIZE) OR DDP_STATIC_ONLY) # sanitizers want their groups of sections
  install(TARGETS ddp_static EXPORT ddpTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
else()
  set_target_properties(ddp_static PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
