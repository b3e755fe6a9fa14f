package remoting

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"slices"
)

// Credentials sign requests. The zero value signs nothing.
type Credentials struct {
	AccessKey, SecretKey, SecurityToken string
}

// sign adds the signature that a broker with ACL wants: HMAC-SHA1 over the values
// of the fields, in the order of their names, and the body.
func (k Credentials) sign(c *Command) {
	if k.AccessKey == "" {
		return
	}
	if c.Ext == nil {
		c.Ext = map[string]string{}
	}
	c.Ext["AccessKey"] = k.AccessKey
	if k.SecurityToken != "" {
		c.Ext["SecurityToken"] = k.SecurityToken
	}
	delete(c.Ext, "Signature") // of an earlier try
	mac := hmac.New(sha1.New, []byte(k.SecretKey))
	for _, name := range slices.Sorted(maps.Keys(c.Ext)) {
		mac.Write([]byte(c.Ext[name]))
	}
	mac.Write(c.Body)
	c.Ext["Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
