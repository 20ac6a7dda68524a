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
    set_tests_properties(fault.${short} PROPERTIES TIMEOUT 300 RUN_SERIAL TRUE)
  endforeach()
endif()
