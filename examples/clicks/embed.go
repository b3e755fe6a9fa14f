// Package clicks carries the click-through-rate trainers inside the binary, so
// that `headrace demo` works without a checkout.
package clicks

import _ "embed"

// Trainer is train.py.
//
//go:embed train.py
var Trainer []byte

// Rival is rival.py, the common part of the trainers below. It needs train.py beside it.
//
//go:embed rival.py
var Rival []byte

// GroupTrainer is train_group.py, which needs rival.py beside it.
//
//go:embed train_group.py
var GroupTrainer []byte

// PulsarTrainer is train_pulsar.py, which needs rival.py beside it.
//
//go:embed train_pulsar.py
var PulsarTrainer []byte

// RocketMQTrainer is train_rocketmq.py, which needs rival.py beside it.
//
//go:embed train_rocketmq.py
var RocketMQTrainer []byte
