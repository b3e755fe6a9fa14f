// Package proof holds no code itself. Its folders prove the product as a whole,
// where a unit test sees only one part:
//
//	sim/         both cores on one virtual clock, with everything that can break
//	planted/     bugs that the simulation must find
//	chaos/       a job of real processes, killed and frozen at random
//	demo/        the quick start; demo/report judges it from journals alone
//	testbroker/  real brokers for tests and demonstrations
//	toymaster/   a small master for tests of the agent
//	child/       processes that these tools start, watch and kill
//
// No part of the product imports them, except cmd/headrace for the `demo` verb.
package proof
