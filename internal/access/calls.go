package access

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Options make a gRPC server refuse what its callers may not do.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := mayCall(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := mayCall(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}

// mayCall is nil if the caller of ctx may make the call.
func mayCall(ctx context.Context, method string) error {
	var c Caller
	if p, ok := peer.FromContext(ctx); ok {
		c, _ = p.AuthInfo.(Caller)
	}
	needed, known := neededForCall(method)
	if known && c.Roles&needed != 0 {
		return nil
	}
	if c.Name == "" {
		c.Name = "a caller without a token"
	}
	st := status.Newf(codes.PermissionDenied, "%s has %s here; %s needs %s", c.Name, c.Roles, method, needed)
	hint := "use another token (--token-file) or certificate; --role and --role-token of the master give roles (docs/SECURITY.md)"
	if with, err := st.WithDetails(&headracev1.ErrorDetail{Hint: hint}); err == nil {
		st = with
	}
	return st.Err()
}
