// Package proof holds no code itself. Its folders prove the product as a whole,
// where a unit test sees only one part:
//
//	sim/         both cores on one virtual clock, with everything that can break
//	planted/     bugs that the simulation must find
//	chaos/       a job of real processes, killed and frozen at random
//	demo/        the quick start; demo/report judges it from journals alone
//	testbroker/  real brokers for tests and demonstrations
//	toymaster/   a small master for tests of the agent
//	memsource/   a live source in memory: what an adapter must be able to do
//	monitoring/  a test of the alerts and the dashboard of docs/MONITORING.md
//	leaks/       whether a test has left goroutines
//	child/       processes that these tools start, watch and kill
//
// Of the product only cmd/headrace imports one of them: demo, for the verb `demo`. The
// benchmark bench/fill imports testbroker, and tests of all packages import what they need.
package proof
