# Tests that are not one program a file of tests/unit.  SPDX-License-Identifier: Apache-2.0

# tests/fault/<x>_test.c -> fault.<x>.  They start processes and bound how long these may take to end: one at a time.
if(CMOCKA AND BUILD_TESTING)
  file(GLOB fault_tests CONFIGURE_DEPENDS tests/fault/*_test.c)
  foreach(source ${fault_tests})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_test$" "" short ${name})
    add_executable(test_${short} ${source})
    target_compile_options(test_${short} PRIVATE -Wno-missing-prototypes)
    target_link_libraries(test_${short} PRIVATE ${below} ${CMOCKA} asp_flags)
    add_test(NAME fault.${short} COMMAND test_${short})
    set_tests_properties(fault.${short} PROPERTIES TIMEOUT 300 RUN_SERIAL TRUE SKIP_RETURN_CODE 77)
  endforeach()
endif()

# The memory a process takes against the plan (Linux; sanitizers have memory of their own).
if(TARGET bench_memory AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT ASP_SANITIZE)
  foreach(run "512;1;none;2;4;16" "512;1;sac;2;4;32" "512;2;sac;2;4;16" "256;4;layer;1;4;48" "512;2;layer;1;4;24;64;1")
    string(REPLACE ";" "." name "${run}")
    add_test(NAME run.memory.${name} COMMAND bench_memory ${run})
  endforeach()
  add_test(NAME run.budgets COMMAND bench_budgets vocab 4)
endif()

# Ranks as threads against ranks as processes.
if(TARGET autosp AND MPI_C_FOUND)
  foreach(run "2;ulysses" "2;ring" "4;ulysses" "4;ring" "4;hybrid:2x2" "6;hybrid:3x2" "6;hybrid:2x3" "3;mixed" "3;auto" "4;auto"
          "2;ulysses;fused" "2;ulysses;dp2" "2;ring;dp2")
    string(REPLACE ";" "." name "${run}")
    string(REPLACE ":" "." name "parity.mpi.${name}")
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/parity/mpi.sh $<TARGET_FILE:autosp> ${PROJECT_SOURCE_DIR} ${run})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300
                         ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  endforeach()
  foreach(run "2;ulysses" "3;ring")
    list(GET run 0 ranks)
    list(GET run 1 sp)
    set(name "parity.mpi.bf16.${ranks}.${sp}")
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/parity/mpi.sh $<TARGET_FILE:autosp> ${PROJECT_SOURCE_DIR} ${ranks} ${sp}
             bf16)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300 ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
  endforeach()
endif()

# The compiler's programs against those written by hand.
if(CMOCKA AND BUILD_TESTING)
  add_executable(test_baselines tests/parity/baselines_test.c bench/baselines/llama.c)
  target_include_directories(test_baselines PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(test_baselines PRIVATE ${below} ${CMOCKA} asp_flags)
  add_test(NAME parity.baselines COMMAND test_baselines)
  set_tests_properties(parity.baselines PROPERTIES TIMEOUT 300)
endif()

# Every model of tests/models on P ranks against one: tests/models/<x>/config.json or <x>.ir -> models.<x>.<P>.
if(TARGET autosp)
  file(GLOB models CONFIGURE_DEPENDS tests/models/*/config.json tests/models/*.ir)
  foreach(model ${models})
    string(REGEX REPLACE "/config.json$" "" path ${model})
    get_filename_component(name ${path} NAME_WE)
    foreach(ranks 2 3 4 6)
      add_test(NAME models.${name}.${ranks} COMMAND ${PROJECT_SOURCE_DIR}/tests/models/verify.sh $<TARGET_FILE:autosp>
               ${model} ${PROJECT_SOURCE_DIR}/LICENSE ${ranks})
      set_tests_properties(models.${name}.${ranks} PROPERTIES TIMEOUT 300 LABELS models)
    endforeach()
  endforeach()
endif()

# The program as its users meet it: tests/cli/<x>_test.py -> cli.<x>.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET autosp AND Python3_Interpreter_FOUND)
  file(GLOB cli_tests CONFIGURE_DEPENDS tests/cli/*_test.py)
  if(NOT MPI_C_FOUND)
    list(FILTER cli_tests EXCLUDE REGEX "/mpi_test.py$")
  endif()
  if(ASP_SANITIZE) # minutes of training, of which every part is tested elsewhere
    list(FILTER cli_tests EXCLUDE REGEX "/readme_test.py$")
  endif()
  foreach(source ${cli_tests})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_test$" "" short ${name})
    add_test(NAME cli.${short} COMMAND ${Python3_EXECUTABLE} -B ${source})
    set_tests_properties(cli.${short} PROPERTIES TIMEOUT 300 LABELS cli ENVIRONMENT
                         "AUTOSP=$<TARGET_FILE:autosp>;ASAN_OPTIONS=detect_leaks=0")
  endforeach()
  if(TEST cli.mpi)
    set_tests_properties(cli.mpi PROPERTIES RUN_SERIAL TRUE) # bounds how long an end takes
  endif()
endif()

# The PyTorch front end on gloo ranks; not run (77) where PyTorch cannot be had.  The library is the same under other compilers.
if(TARGET autosp AND TARGET autosp_shared AND Python3_Interpreter_FOUND AND CMAKE_BUILD_TYPE STREQUAL "Debug" AND
   CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
  add_test(NAME python.torch COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/python/suite.py $<TARGET_FILE:autosp_shared>
           ${PROJECT_SOURCE_DIR}/build/venv)
  set_tests_properties(python.torch PROPERTIES TIMEOUT 1800 RUN_SERIAL TRUE SKIP_RETURN_CODE 77)
endif()

# The library as its users meet it: installed, found by pkg-config, the example built against it.
find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG AND TARGET autosp_shared)
  add_test(NAME install.example COMMAND ${PROJECT_SOURCE_DIR}/tests/install/example.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
           ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} "${ASP_SANITIZE}")
  set_tests_properties(install.example PROPERTIES TIMEOUT 300 ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endif()

# Random programs on several ranks against one device (more of them: test_property 50000 2001).
if(BUILD_TESTING)
  set(random_programs tests/property/support/random_program.c tests/property/support/random_attention.c
      tests/property/support/random_snippets.c tests/property/support/text_run.c)
  add_executable(test_property tests/property/property_test.c ${random_programs})
  target_compile_definitions(test_property PRIVATE "ASP_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
  target_include_directories(test_property PRIVATE tests)
  target_link_libraries(test_property PRIVATE ${below} asp_flags)
  if(ASP_SANITIZE)
    add_test(NAME property COMMAND test_property 200)
  else()
    add_test(NAME property COMMAND test_property 2000)
  endif()
  set_tests_properties(property PROPERTIES TIMEOUT 900)
  add_executable(test_mutation tests/property/mutation_test.c ${random_programs})
  target_include_directories(test_mutation PRIVATE tests)
  target_link_libraries(test_mutation PRIVATE ${below} asp_flags)
  add_test(NAME mutation COMMAND test_mutation)
endif()

# The acceptance cases of sequence parallelism: tests/cases/<x>.c -> case.<x>, functions sp_case_NN.
if(CMOCKA AND BUILD_TESTING)
  file(GLOB case_tests CONFIGURE_DEPENDS tests/cases/*.c)
  foreach(source ${case_tests})
    get_filename_component(short ${source} NAME_WE)
    add_executable(case_${short} ${source} tests/cases/support/cases.c tests/cases/support/decoder.c
                   tests/property/support/text_run.c tests/property/support/random_program.c
                   tests/property/support/random_attention.c tests/property/support/random_snippets.c)
    target_compile_options(case_${short} PRIVATE -Wno-missing-prototypes)
    target_include_directories(case_${short} PRIVATE tests)
    target_link_libraries(case_${short} PRIVATE ${below} ${CMOCKA} asp_flags)
    add_test(NAME case.${short} COMMAND case_${short})
    set_tests_properties(case.${short} PROPERTIES TIMEOUT 900)
  endforeach()
endif()

# The bench of recomputation takes its programs from the tests.
if(TARGET bench_remat)
  target_sources(bench_remat PRIVATE tests/unit/flow/support/llama_program.c)
  target_include_directories(bench_remat PRIVATE tests)
endif()
