# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAMS=FILE... -P options.cmake   checks the options that all examples share: `--help` prints a sentence and
# the options on stdout, with status 0. An unknown option prints one line on stderr, with status 2.
foreach(program IN LISTS PROGRAMS)
  execute_process(COMMAND "${program}" --help OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT out MATCHES "^[A-Z][^\n]*\\.\nUsage: .*--help" OR err)
    message(SEND_ERROR "${program} --help: status ${status}, stdout:\n${out}stderr:\n${err}")
  endif()
  execute_process(COMMAND "${program}" --no-such-option OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE status)
  if(NOT status EQUAL 2 OR NOT err MATCHES "^[^\n]*--no-such-option[^\n]*\n$" OR out)
    message(SEND_ERROR "${program} --no-such-option: status ${status}, stdout:\n${out}stderr:\n${err}")
  endif()
endforeach()
if(NOT PROGRAMS)
  message(FATAL_ERROR "no programs")
endif()
